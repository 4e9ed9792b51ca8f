-- Rank rows of all steps of the jobs from first_job to last_job in the order of their ids; of a
-- step that several attempts ran, the newest attempt's rows.
WITH newest AS (
    SELECT job_id, step, max(attempt) AS attempt
    FROM steps
    WHERE job_id BETWEEN :first_job AND :last_job
    GROUP BY job_id, step
)
SELECT
    s.job_id, s.attempt, s.step, s.rank, s.start_us, s.duration_us, s.compute_us, s.comm_us,
    s.transfer_us, s.wait_us, s.input_us, s.checkpoint_us, s.h2d_us, s.gc_us, s.other_us,
    s.collective_us, s.tokens, s.seq_sq_sum, s.loss
FROM steps s
JOIN newest n ON s.job_id = n.job_id AND s.step = n.step AND s.attempt = n.attempt
ORDER BY s.job_id, s.step, s.rank
