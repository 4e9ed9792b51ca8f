-- How many rows of each source of bills were rejected.
SELECT source, count(*) AS line_count
FROM rejects
WHERE "table" = 'charges'
GROUP BY source
ORDER BY source
