-- Every step of a job's whole history, its newest attempt: longest report, mean and longest work.
WITH newest AS (
    SELECT step, max(attempt) AS attempt
    FROM step_totals
    GROUP BY step
)
SELECT
    t.step, t.row_count, t.duration_max AS duration_us, t.work_sum AS work_sum_us,
    t.work_max AS work_max_us, t.work_max_rank, t.comm_n, t.compute_n
FROM step_totals t
JOIN newest n ON t.step = n.step AND t.attempt = n.attempt
ORDER BY t.step
