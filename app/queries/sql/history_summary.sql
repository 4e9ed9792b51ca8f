-- Every executed step of every attempt, as step_summary gives it, from roll-ups.
SELECT attempt, step, first_start_us AS start_us, duration_max AS duration_us
FROM step_totals
ORDER BY attempt, step
