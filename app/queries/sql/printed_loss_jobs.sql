-- Jobs that printed or logged a loss.
SELECT job_id
FROM printed_metrics
WHERE name = 'loss' AND subject = 'job' AND value IS NOT NULL
GROUP BY job_id
ORDER BY job_id
