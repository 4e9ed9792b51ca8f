-- Lines of every bill.
SELECT
    provider, invoice, line, billing_start_us, billing_end_us, charge_start_us, charge_end_us,
    billed_cost, effective_cost, currency, resource_id, commitment_status, reservation_status
FROM charges
ORDER BY provider, invoice, line
