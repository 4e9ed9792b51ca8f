-- Loss of the job as it was printed or logged, and when.
SELECT attempt, step, value AS loss, at_us, source, printed_as
FROM printed_metrics
WHERE name = 'loss' AND subject = 'job'
ORDER BY attempt, step
