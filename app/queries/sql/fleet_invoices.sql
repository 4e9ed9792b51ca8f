-- What each invoice adds up to, by the category of its charges; lines that a later delivery of
-- the bill replaced do not count.
SELECT
    provider, invoice, currency, charge_category,
    min(billing_start_us) AS billing_start_us, max(billing_end_us) AS billing_end_us,
    count(*) AS charge_count, count(billed_cost) AS billed_count,
    count(effective_cost) AS effective_count,
    sum(billed_cost) AS billed_cost, sum(effective_cost) AS effective_cost,
    sum(list_cost) AS list_cost, sum(contracted_cost) AS contracted_cost
FROM charges
ANTI JOIN (SELECT provider, invoice, line FROM charge_states WHERE NOT counts)
    USING (provider, invoice, line)
GROUP BY provider, invoice, currency, charge_category
ORDER BY provider, invoice, currency NULLS FIRST, charge_category NULLS FIRST
