-- What each invoice adds up to, by the category of its charges; lines that a later delivery of
-- the bill replaced, or that are held, do not count. Of a billed export that is joined with an
-- amortised one only what is billed counts, of the amortised one only what it is worth.
WITH counted AS (
    SELECT c.provider, c.invoice, c.currency, c.charge_category, c.billing_start_us,
        c.billing_end_us,
        CASE WHEN s.part = 'effective' THEN 0 ELSE c.billed_cost END AS billed_cost,
        CASE WHEN s.part = 'billed' THEN 0 ELSE c.effective_cost END AS effective_cost,
        CASE WHEN s.part = 'effective' THEN 0 ELSE c.list_cost END AS list_cost,
        CASE WHEN s.part = 'effective' THEN 0 ELSE c.contracted_cost END AS contracted_cost
    FROM charges c
    LEFT JOIN charge_states s
        ON c.provider = s.provider AND c.invoice = s.invoice AND c.line = s.line
    WHERE coalesce(s.counts, true)
)
SELECT
    provider, invoice, currency, charge_category,
    min(billing_start_us) AS billing_start_us, max(billing_end_us) AS billing_end_us,
    count(*) AS charge_count, count(billed_cost) AS billed_count,
    count(effective_cost) AS effective_count,
    sum(billed_cost) AS billed_cost, sum(effective_cost) AS effective_cost,
    sum(list_cost) AS list_cost, sum(contracted_cost) AS contracted_cost
FROM counted
GROUP BY provider, invoice, currency, charge_category
ORDER BY provider, invoice, currency NULLS FIRST, charge_category NULLS FIRST
