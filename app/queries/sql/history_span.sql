-- Extent of a job's steps, as step_span gives it, from roll-ups.
SELECT
    max(attempt) AS attempt,
    min(step) AS first_step,
    max(step) AS last_step,
    count(DISTINCT step) AS steps,
    (SELECT count(DISTINCT rank) FROM rank_windows_parts) AS ranks,
    CAST(sum(row_count) AS BIGINT) AS row_count,
    min(first_start_us) AS first_start_us,
    max(newest_us) AS newest_us,
    max(stored_us) AS ingested_at_us
FROM step_totals
