-- How much of what devices told of themselves they were hardly used, from the roll-up by day.
SELECT count(DISTINCT concat(host, ' ', gpu_uuid)) AS devices,
    count(DISTINCT host) AS hosts,
    CAST(sum(util_ppm_n) AS BIGINT) AS samples,
    CAST(sum(util_bin_0) AS BIGINT) AS idle_samples,
    sum(util_ppm_sum) / 1e6 / nullif(sum(util_ppm_n), 0) AS util_ratio,
    min(first_us) AS first_us,
    max(last_us) AS last_us
FROM device_days
