-- Every dated offer that counts, with who accepted it and when it was stored.
SELECT provider, gpu_model, form_factor, region, term, segment, observed_on, usd_per_gpu_hour,
    source_url, source, held_because, accepted_by, ingested_at_us
FROM prices
WHERE usd_per_gpu_hour IS NOT NULL
ORDER BY gpu_model, provider, form_factor, region, term, segment, observed_on
