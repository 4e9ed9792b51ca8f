-- Days (since 1970) at which what is stored of bills begins: of the billing period, else of the
-- charge.
SELECT DISTINCT provider,
    CAST(floor(coalesce(billing_start_us, charge_start_us) / 8.64e10) AS BIGINT) AS day
FROM charges
ORDER BY provider, day NULLS FIRST
