-- Loss of every executed step of every attempt, as the mean of the ranks that report one, and when.
SELECT
    attempt, step,
    min(start_us) AS start_us, max(duration_us) AS duration_us,
    count(DISTINCT rank) AS ranks, avg(loss) AS loss
FROM steps
GROUP BY attempt, step
ORDER BY attempt, step
