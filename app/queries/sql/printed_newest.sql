-- Of each name and subject the value that a job's log printed last, and how many it printed.
SELECT
    name, subject, max(printed_as) AS printed_as, max(unit) AS unit,
    max_by(value, attempt * 1000000000000 + step) FILTER (WHERE value IS NOT NULL) AS value,
    max_by(text, attempt * 1000000000000 + step) FILTER (WHERE text IS NOT NULL) AS text,
    max(step) AS step,
    count(value) AS values_printed,
    avg(value) AS mean_value
FROM printed_metrics
GROUP BY name, subject
ORDER BY name, subject
