-- What all devices did on each day (UTC), from the roll-up by hours; means are of samples that tell
-- it. An hour in which nothing of a device moves, to the last digit, repeats an old value (a
-- collector that hangs): its samples are counted apart and say nothing.
WITH hours AS (
    SELECT *, concat(host, ' ', gpu_uuid) AS device,
        CAST(floor(bucket_us / 8.64e10) AS BIGINT) * 86400000000 AS day_us,
        samples > 10
            AND util_ppm_n = samples AND power_mw_n = samples AND temperature_mc_n = samples
            AND util_ppm_min = util_ppm_max AND power_mw_min = power_mw_max
            AND temperature_mc_min = temperature_mc_max
            AND coalesce(energy_mj_min = energy_mj_max, true)
            AND coalesce(sm_clock_khz_min = sm_clock_khz_max, true)
            AND coalesce(memory_used_bytes_min = memory_used_bytes_max, true)
            AND coalesce(sm_active_ppm_min = sm_active_ppm_max, true) AS is_stale
    FROM device_hours
),
days AS (
    SELECT *, max(CASE WHEN NOT is_stale THEN temperature_mc_max END) OVER (PARTITION BY day_us)
            AS hottest_mc
    FROM hours
    WHERE (:first_us IS NULL OR day_us >= :first_us)
        AND (:last_us IS NULL OR day_us <= :last_us)
)
SELECT day_us AS bucket_us,
    count(DISTINCT device) AS devices,
    count(DISTINCT host) AS hosts,
    CAST(sum(samples) AS BIGINT) AS samples,
    CAST(sum(CASE WHEN is_stale THEN samples ELSE 0 END) AS BIGINT) AS stale_samples,
    sum(util_ppm_sum) FILTER (WHERE NOT is_stale) / 1e6
        / nullif(sum(util_ppm_n) FILTER (WHERE NOT is_stale), 0) AS util_ratio,
    sum(sm_active_ppm_sum) FILTER (WHERE NOT is_stale) / 1e6
        / nullif(sum(sm_active_ppm_n) FILTER (WHERE NOT is_stale), 0) AS sm_active_ratio,
    sum(power_mw_sum) FILTER (WHERE NOT is_stale) / 1e3
        / nullif(sum(power_mw_n) FILTER (WHERE NOT is_stale), 0) AS power_w,
    max(CASE WHEN NOT is_stale THEN power_mw_max END) / 1e3 AS power_max_w,
    max(CASE WHEN NOT is_stale THEN temperature_mc_max END) / 1e3 AS temperature_max_c,
    min(CASE WHEN NOT is_stale AND temperature_mc_max = hottest_mc THEN device END) AS hottest,
    CASE WHEN sum(throttle_known) FILTER (WHERE NOT is_stale) > 0
        THEN sum(throttled) FILTER (WHERE NOT is_stale) * 1e0
            / sum(throttle_known) FILTER (WHERE NOT is_stale) END
        AS throttled_ratio,
    CAST(sum(unhealthy) AS BIGINT) AS unhealthy_samples
FROM days
GROUP BY day_us
ORDER BY day_us
