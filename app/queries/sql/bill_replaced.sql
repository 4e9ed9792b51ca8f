-- How many lines of each source do not count: a later delivery of the bill replaced them, or another
-- kind of file tells of the same (held_for).
SELECT file, source AS replaced_by, coalesce(held_for, '') AS held_for, count(*) AS line_count
FROM charge_states
WHERE NOT counts
GROUP BY file, source, coalesce(held_for, '')
ORDER BY file NULLS LAST, source, held_for NULLS LAST
