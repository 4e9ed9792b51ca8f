-- Charges of every bill but lines that a later delivery replaced, those that differ in nothing but their line and their SKU added up. A
-- charge without a period of its own has that of its bill. What is not stated is counted apart.
WITH timed AS (
    SELECT
        *,
        CASE WHEN charge_start_us IS NULL OR charge_end_us IS NULL
            THEN billing_start_us ELSE charge_start_us END AS start_us,
        CASE WHEN charge_start_us IS NULL OR charge_end_us IS NULL
            THEN billing_end_us ELSE charge_end_us END AS end_us,
        effective_cost IS NULL AS lacks_effective,
        billed_cost IS NULL AS lacks_billed
    FROM charges
    ANTI JOIN (SELECT provider, invoice, line FROM charge_states WHERE NOT counts)
        USING (provider, invoice, line)
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
