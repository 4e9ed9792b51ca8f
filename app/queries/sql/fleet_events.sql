-- What happened to every job, in order.
SELECT job_id, attempt, start_us, end_us, kind, ranks, detail
FROM events
ORDER BY job_id, start_us, kind, attempt
