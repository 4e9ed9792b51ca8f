WITH told AS (
    SELECT step - step % :window_steps AS window_step, attempt, sum(row_count) AS reports
    FROM step_bins_spans
    GROUP BY step - step % :window_steps, attempt
),
chosen AS (
    SELECT
        window_step,
        max_by(attempt, (CASE WHEN :window_steps = 1 THEN 0 ELSE reports END, attempt)) AS attempt
    FROM told
    GROUP BY window_step
),
bins AS (
    SELECT
        b.step - b.step % :step_block AS block_step,
        b.work_bin,
        CAST(sum(b.row_count) AS BIGINT) AS row_count
    FROM step_bins_spans b
    JOIN chosen c ON b.step - b.step % :window_steps = c.window_step AND b.attempt = c.attempt
    GROUP BY b.step - b.step % :step_block, b.work_bin
)
