-- Rejected rows, newest first.
SELECT ingested_at_us, source, "table", source_row, field, reason, raw
FROM rejects
ORDER BY ingested_at_us DESC, source, source_row NULLS LAST, reason
LIMIT :limit_rows
