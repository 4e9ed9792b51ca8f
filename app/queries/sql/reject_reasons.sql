-- Rejected rows per source, table and field.
SELECT source, "table", field, count(*) AS row_count, min(reason) AS example,
    max(ingested_at_us) AS newest_us
FROM rejects
GROUP BY source, "table", field
ORDER BY row_count DESC, source, "table", field NULLS LAST
