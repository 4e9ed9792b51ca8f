-- Extent of the steps of every job: newest attempt, first and last step, ranks, rows, newest end.
SELECT
    job_id,
    max(attempt) AS attempt,
    min(step) AS first_step,
    max(step) AS last_step,
    count(DISTINCT step) AS steps,
    count(DISTINCT rank) AS ranks,
    count(*) AS row_count,
    min(start_us) AS first_start_us,
    max(start_us + duration_us) AS newest_us,
    max(ingested_at_us) AS ingested_at_us
FROM steps
GROUP BY job_id
ORDER BY job_id
