-- What stopped jobs: failures, and evictions, with the ranks that they name.
SELECT job_id, attempt, start_us, kind, ranks
FROM events
WHERE kind IN ('failure', 'evict')
ORDER BY job_id, start_us, kind, attempt
