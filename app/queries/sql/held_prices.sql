-- Offers that look wrong, each unless a person accepted it.
SELECT h.provider, h.gpu_model, h.form_factor, h.region, h.term, h.segment, h.observed_on,
    h.usd_per_gpu_hour, h.source_url, h.source, h.held_because, h.ingested_at_us
FROM held_prices h
LEFT JOIN prices p
    ON p.provider = h.provider AND p.gpu_model = h.gpu_model AND p.form_factor = h.form_factor
    AND p.region = h.region AND p.term = h.term AND p.segment = h.segment
    AND p.observed_on = h.observed_on AND p.usd_per_gpu_hour = h.usd_per_gpu_hour
WHERE p.provider IS NULL
ORDER BY h.gpu_model, h.provider, h.form_factor, h.region, h.term, h.segment, h.observed_on,
    h.usd_per_gpu_hour NULLS LAST
