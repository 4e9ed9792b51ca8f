-- Stored lines of bills from first_us on and before last_us (start of the billing period, else of
-- the charge), whether each counts, and the delivery that told it last.
SELECT
    c.*, coalesce(s.counts, true) AS counts,
    CASE WHEN s.counts THEN s.source ELSE c.source END AS delivery,
    CASE WHEN s.counts THEN s.ingested_at_us ELSE c.ingested_at_us END AS delivered_us
FROM charges AS c
LEFT JOIN charge_states AS s USING (provider, invoice, line)
WHERE coalesce(c.billing_start_us, c.charge_start_us) IS NULL
    OR coalesce(c.billing_start_us, c.charge_start_us) BETWEEN :first_us AND :last_us
