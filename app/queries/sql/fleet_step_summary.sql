-- Every executed step of every attempt of every job: its earliest start and longest duration.
SELECT job_id, attempt, step, min(start_us) AS start_us, max(duration_us) AS duration_us
FROM steps
GROUP BY job_id, attempt, step
ORDER BY job_id, attempt, step
