-- Step numbers that a job has, in order.
SELECT DISTINCT step
FROM steps
ORDER BY step
