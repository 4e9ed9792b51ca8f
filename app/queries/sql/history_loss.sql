-- Loss of every executed step of every attempt, as loss_by_step gives it, from roll-ups. A sum of
-- losses is of two numbers there; in kept sums of older versions it is the first alone.
SELECT
    attempt, step, first_start_us AS start_us, duration_max AS duration_us, row_count AS ranks,
    (CAST(loss_nano_sum AS DOUBLE) + coalesce(loss_high_sum, 0) * 4.294967296e9) / loss_n / 1.0e9
        AS loss
FROM step_totals
ORDER BY attempt, step
