-- All jobs, newest knowledge of each, by start and id.
SELECT *
FROM jobs
ORDER BY start_us DESC NULLS LAST, job_id
