-- Charges of every bill that count, those that differ in nothing but their line and their SKU added
-- up: lines that a later delivery replaced, or that are held, are left out. Of a billed export that
-- is joined with an amortised one only what is billed counts, of the amortised one only what it is
-- worth. A charge without a period of its own has that of its bill. What is not stated is counted
-- apart.
WITH counted AS (
    SELECT c.provider, c.invoice, c.line, c.currency, c.resource_id, c.tags, c.commitment_status,
        c.reservation_status, c.billing_start_us, c.billing_end_us, c.charge_start_us,
        c.charge_end_us,
        CASE WHEN s.part = 'effective' THEN 0 ELSE c.billed_cost END AS billed_cost,
        CASE WHEN s.part = 'billed' THEN 0 ELSE c.effective_cost END AS effective_cost
    FROM charges c
    LEFT JOIN charge_states s
        ON c.provider = s.provider AND c.invoice = s.invoice AND c.line = s.line
    WHERE coalesce(s.counts, true)
), timed AS (
    SELECT
        *,
        CASE WHEN charge_start_us IS NULL OR charge_end_us IS NULL
            THEN billing_start_us ELSE charge_start_us END AS start_us,
        CASE WHEN charge_start_us IS NULL OR charge_end_us IS NULL
            THEN billing_end_us ELSE charge_end_us END AS end_us,
        effective_cost IS NULL AS lacks_effective,
        billed_cost IS NULL AS lacks_billed
    FROM counted
)
SELECT
    min(provider) AS provider, min(invoice) AS invoice, min(line) AS line, currency, resource_id,
    tags, commitment_status, reservation_status, start_us AS charge_start_us,
    end_us AS charge_end_us, lacks_effective, lacks_billed, count(*) AS charge_count,
    sum(billed_cost) AS billed_cost, sum(effective_cost) AS effective_cost
FROM timed
GROUP BY
    currency, resource_id, tags, commitment_status, reservation_status, start_us, end_us,
    lacks_effective, lacks_billed
ORDER BY provider, invoice, line
