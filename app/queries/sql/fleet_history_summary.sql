-- Every executed step of every attempt of every job, as fleet_step_summary gives it, from roll-ups.
SELECT job_id, attempt, step, first_start_us AS start_us, duration_max AS duration_us
FROM step_totals
ORDER BY job_id, attempt, step
