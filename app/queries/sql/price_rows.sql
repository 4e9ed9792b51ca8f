-- Every dated offer that states a price, with where it was seen.
SELECT provider, gpu_model, form_factor, region, term, segment, observed_on, usd_per_gpu_hour,
    source_url, source
FROM prices
WHERE usd_per_gpu_hour IS NOT NULL
ORDER BY gpu_model, observed_on, provider, form_factor, region, term, segment
