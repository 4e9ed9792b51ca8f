-- How much of what devices told of themselves they were hardly used, from the roll-up by hours. An
-- hour in which nothing of a device moves, to the last digit, repeats an old value: its samples say
-- nothing.
WITH hours AS (
    SELECT *,
        samples > 10
            AND util_ppm_n = samples AND power_mw_n = samples AND temperature_mc_n = samples
            AND util_ppm_min = util_ppm_max AND power_mw_min = power_mw_max
            AND temperature_mc_min = temperature_mc_max
            AND coalesce(energy_mj_min = energy_mj_max, true)
            AND coalesce(sm_clock_khz_min = sm_clock_khz_max, true)
            AND coalesce(memory_used_bytes_min = memory_used_bytes_max, true)
            AND coalesce(sm_active_ppm_min = sm_active_ppm_max, true) AS is_stale
    FROM device_hours
)
SELECT count(DISTINCT concat(host, ' ', gpu_uuid)) AS devices,
    count(DISTINCT host) AS hosts,
    CAST(sum(CASE WHEN is_stale THEN 0 ELSE util_ppm_n END) AS BIGINT) AS samples,
    CAST(sum(CASE WHEN is_stale THEN 0 ELSE util_bin_0 END) AS BIGINT) AS idle_samples,
    CAST(sum(CASE WHEN is_stale THEN samples ELSE 0 END) AS BIGINT) AS stale_samples,
    sum(CASE WHEN is_stale THEN 0 ELSE util_ppm_sum END) / 1e6
        / nullif(sum(CASE WHEN is_stale THEN 0 ELSE util_ppm_n END), 0) AS util_ratio,
    min(first_us) AS first_us,
    max(last_us) AS last_us
FROM hours
