-- How many operations each traced step of a job has.
SELECT step, count(*) AS row_count
FROM ops
GROUP BY step
ORDER BY step
