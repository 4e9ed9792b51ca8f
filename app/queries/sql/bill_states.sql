-- What later deliveries said of lines of bills.
SELECT provider, invoice, line, counts, file, held_for, told_by, part, source, ingested_at_us
FROM charge_states
ORDER BY provider, invoice, line
