-- What all devices did on each day (UTC), from the roll-up; means are of samples that tell it.
WITH days AS (
    SELECT *, concat(host, ' ', gpu_uuid) AS device,
        max(temperature_mc_max) OVER (PARTITION BY bucket_us) AS hottest_mc
    FROM device_days
    WHERE (:first_us IS NULL OR bucket_us >= :first_us)
        AND (:last_us IS NULL OR bucket_us <= :last_us)
)
SELECT bucket_us,
    count(DISTINCT device) AS devices,
    count(DISTINCT host) AS hosts,
    CAST(sum(samples) AS BIGINT) AS samples,
    sum(util_ppm_sum) / 1e6 / nullif(sum(util_ppm_n), 0) AS util_ratio,
    sum(sm_active_ppm_sum) / 1e6 / nullif(sum(sm_active_ppm_n), 0) AS sm_active_ratio,
    sum(power_mw_sum) / 1e3 / nullif(sum(power_mw_n), 0) AS power_w,
    max(power_mw_max) / 1e3 AS power_max_w,
    max(temperature_mc_max) / 1e3 AS temperature_max_c,
    min(CASE WHEN temperature_mc_max = hottest_mc THEN device END) AS hottest,
    CASE WHEN sum(throttle_known) > 0 THEN sum(throttled) * 1e0 / sum(throttle_known) END
        AS throttled_ratio,
    CAST(sum(unhealthy) AS BIGINT) AS unhealthy_samples
FROM days
GROUP BY bucket_us
ORDER BY bucket_us
