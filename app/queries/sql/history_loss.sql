-- Loss of every executed step of every attempt, as loss_by_step gives it, from roll-ups.
SELECT
    attempt, step, first_start_us AS start_us, duration_max AS duration_us, row_count AS ranks,
    CAST(loss_nano_sum AS DOUBLE) / loss_n / 1.0e9 AS loss
FROM step_totals
ORDER BY attempt, step
