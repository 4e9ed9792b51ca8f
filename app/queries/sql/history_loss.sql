-- Loss of every executed step of every attempt, as loss_by_step gives it, from roll-ups. A sum of
-- losses is of two numbers there; in kept sums of older versions it is another one.
SELECT
    attempt, step, first_start_us AS start_us, duration_max AS duration_us, row_count AS ranks,
    CASE WHEN loss_n > 0 AND coalesce(loss_odd_n, 0) = 0 THEN (
        CAST(coalesce(loss_nano_sum, 0) AS DOUBLE) + CAST(coalesce(loss_low_sum, 0) AS DOUBLE)
        + coalesce(loss_high_sum, 0) * 4.294967296e9
    ) / loss_n / 1.0e9 END AS loss
FROM step_totals
ORDER BY attempt, step
