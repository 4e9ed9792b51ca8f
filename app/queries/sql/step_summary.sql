-- Every executed step of every attempt: its earliest start and longest duration over ranks.
SELECT attempt, step, min(start_us) AS start_us, max(duration_us) AS duration_us
FROM steps
GROUP BY attempt, step
ORDER BY attempt, step
