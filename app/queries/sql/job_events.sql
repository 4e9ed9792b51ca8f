-- What happened to a job, in order.
SELECT attempt, start_us, end_us, kind, ranks, detail
FROM events
ORDER BY start_us, kind, attempt
