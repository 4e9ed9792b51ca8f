-- Loss of every executed step of every attempt, as the mean of the ranks that report one, and when;
-- none where one of them is not finite, or beyond any.
SELECT
    attempt, step,
    min(start_us) AS start_us, max(duration_us) AS duration_us,
    count(DISTINCT rank) AS ranks,
    -- loss - loss: that alone DuckDB does not answer by statistics of a file, which pass over NaN.
    CASE WHEN count(loss) = count(CASE WHEN loss - loss = 0 AND abs(loss) < 9.0e9 THEN 1 END)
        THEN avg(loss) END AS loss
FROM steps
GROUP BY attempt, step
ORDER BY attempt, step
