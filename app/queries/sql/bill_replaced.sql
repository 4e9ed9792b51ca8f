-- How many lines of each source a later delivery of the bill replaced.
SELECT file, source AS replaced_by, count(*) AS line_count
FROM charge_states
WHERE NOT counts
GROUP BY file, source
ORDER BY file, source
