-- Values of one name that a job's log printed, by attempt and step.
SELECT attempt, step, subject, rank, value, unit, text, printed_as, interval_steps
FROM printed_metrics
WHERE name = :printed_name
ORDER BY attempt, step, subject
