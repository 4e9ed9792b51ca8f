-- Every dated offer of a device that states a price.
SELECT provider, gpu_model, form_factor, region, term, observed_on, usd_per_gpu_hour
FROM prices
WHERE usd_per_gpu_hour IS NOT NULL
ORDER BY gpu_model, observed_on, provider, form_factor, region, term
