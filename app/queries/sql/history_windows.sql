-- Work of each rank over a job's whole history, by blocks of step_block steps, a multiple of the
-- window_steps of a window, which is one of those that are stored. Of a window that several attempts ran in part, the attempt with the most
-- reports. An engine gives them in no order: a page makes a matrix of them.
WITH told AS (
    SELECT step - step % :window_steps AS window_step, attempt, sum(row_count) AS reports
    FROM step_totals
    GROUP BY step - step % :window_steps, attempt
),
fullest AS (
    SELECT window_step, max_by(attempt, (reports, attempt)) AS attempt
    FROM told
    GROUP BY window_step
)
SELECT
    r.rank,
    r.window_step - r.window_step % :step_block AS block_step,
    CAST(sum(r.row_count) AS BIGINT) AS row_count,
    CAST(sum(r.work_sum) AS BIGINT) AS work_sum_us
FROM rank_windows_spans r
JOIN fullest f
    ON r.window_step - r.window_step % :window_steps = f.window_step AND r.attempt = f.attempt
GROUP BY r.rank, r.window_step - r.window_step % :step_block
