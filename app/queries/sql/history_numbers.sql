-- Step numbers that a job has, in order, from roll-ups.
SELECT DISTINCT step
FROM step_totals
ORDER BY step
