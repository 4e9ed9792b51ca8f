-- Hours of devices without what only repeats an old value. An hour in which nothing of a device
-- moves, to the last digit, is stale, and so are the minutes beside it that say the same.
WITH judged AS (
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
),
beside AS (
    SELECT host, gpu_uuid, bucket_us, is_stale,
        lead(CASE WHEN is_stale THEN bucket_us END) OVER w AS later_us,
        lag(CASE WHEN is_stale THEN bucket_us END) OVER w AS earlier_us
    FROM judged
    WINDOW w AS (PARTITION BY host, gpu_uuid ORDER BY bucket_us)
),
edges AS (
    SELECT host, gpu_uuid, bucket_us AS hour_us, later_us AS stale_us, true AS is_before
    FROM beside
    WHERE NOT is_stale AND later_us IS NOT NULL
    UNION ALL
    SELECT host, gpu_uuid, bucket_us, earlier_us, false
    FROM beside
    WHERE NOT is_stale AND earlier_us IS NOT NULL
),
minutes AS (
    SELECT m.host, m.gpu_uuid, m.bucket_us, e.hour_us, e.is_before,
        min(CASE WHEN m.util_ppm_n = m.samples AND m.power_mw_n = m.samples
                    AND m.temperature_mc_n = m.samples
                    AND m.util_ppm_min = s.util_ppm_max
                    AND m.util_ppm_max = s.util_ppm_max
                    AND m.power_mw_min = s.power_mw_max
                    AND m.power_mw_max = s.power_mw_max
                    AND m.temperature_mc_min = s.temperature_mc_max
                    AND m.temperature_mc_max = s.temperature_mc_max
                    AND coalesce(m.energy_mj_min = s.energy_mj_max
                        AND m.energy_mj_max = s.energy_mj_max, true)
                    AND coalesce(m.sm_clock_khz_min = s.sm_clock_khz_max
                        AND m.sm_clock_khz_max = s.sm_clock_khz_max, true)
                    AND coalesce(m.memory_used_bytes_min = s.memory_used_bytes_max
                        AND m.memory_used_bytes_max = s.memory_used_bytes_max, true)
                    AND coalesce(m.sm_active_ppm_min = s.sm_active_ppm_max
                        AND m.sm_active_ppm_max = s.sm_active_ppm_max, true)
            THEN 1 ELSE 0 END) AS is_same,
        sum(m.samples) AS samples,
        sum(m.util_ppm_n) AS util_ppm_n,
        sum(m.util_bin_0) AS util_bin_0,
        sum(m.util_ppm_sum) AS util_ppm_sum,
        sum(m.sm_active_ppm_n) AS sm_active_ppm_n,
        sum(m.sm_active_ppm_sum) AS sm_active_ppm_sum,
        sum(m.power_mw_n) AS power_mw_n,
        sum(m.power_mw_sum) AS power_mw_sum,
        sum(m.throttle_known) AS throttle_known,
        sum(m.throttled) AS throttled
    FROM device_minutes_parts m
    JOIN edges e ON m.host = e.host AND m.gpu_uuid = e.gpu_uuid
        AND m.bucket_us - m.bucket_us % 3600000000 = e.hour_us
    JOIN judged s ON s.host = e.host AND s.gpu_uuid = e.gpu_uuid AND s.bucket_us = e.stale_us
    GROUP BY m.host, m.gpu_uuid, m.bucket_us, e.hour_us, e.is_before
),
runs AS (
    SELECT *,
        -- The first minute of a run is the measurement that the others repeat.
        CASE WHEN is_before THEN lag(is_same, 1, 0) OVER w = 1 AND min(is_same) OVER (
                PARTITION BY host, gpu_uuid, hour_us, is_before ORDER BY bucket_us
                ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) = 1
            ELSE min(is_same) OVER (
                PARTITION BY host, gpu_uuid, hour_us, is_before ORDER BY bucket_us
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) = 1
        END AS is_stale
    FROM minutes
    WINDOW w AS (PARTITION BY host, gpu_uuid, hour_us, is_before ORDER BY bucket_us)
),
repeated AS (
    SELECT host, gpu_uuid, hour_us,
        sum(samples) AS samples,
        sum(util_ppm_n) AS util_ppm_n,
        sum(util_bin_0) AS util_bin_0,
        sum(util_ppm_sum) AS util_ppm_sum,
        sum(sm_active_ppm_n) AS sm_active_ppm_n,
        sum(sm_active_ppm_sum) AS sm_active_ppm_sum,
        sum(power_mw_n) AS power_mw_n,
        sum(power_mw_sum) AS power_mw_sum,
        sum(throttle_known) AS throttle_known,
        sum(throttled) AS throttled
    FROM (
        SELECT DISTINCT host, gpu_uuid, bucket_us, hour_us,
            samples, util_ppm_n, util_bin_0, util_ppm_sum, sm_active_ppm_n,
            sm_active_ppm_sum, power_mw_n, power_mw_sum, throttle_known, throttled
        FROM runs
        WHERE is_stale
    ) AS once
    GROUP BY host, gpu_uuid, hour_us
),
hours AS (
    SELECT j.host, j.gpu_uuid, j.bucket_us, j.is_stale, j.samples,
        j.first_us, j.last_us, j.unhealthy,
        j.power_mw_max, j.temperature_mc_max,
        CASE WHEN j.is_stale THEN j.samples ELSE coalesce(r.samples, 0) END AS stale_samples,
        CASE WHEN j.is_stale THEN 0 ELSE j.util_ppm_n - coalesce(r.util_ppm_n, 0) END
            AS util_ppm_n,
        CASE WHEN j.is_stale THEN 0 ELSE j.util_bin_0 - coalesce(r.util_bin_0, 0) END
            AS util_bin_0,
        CASE WHEN j.is_stale THEN 0 ELSE j.util_ppm_sum - coalesce(r.util_ppm_sum, 0) END
            AS util_ppm_sum,
        CASE WHEN j.is_stale THEN 0 ELSE j.sm_active_ppm_n - coalesce(r.sm_active_ppm_n, 0) END
            AS sm_active_ppm_n,
        CASE WHEN j.is_stale THEN 0 ELSE j.sm_active_ppm_sum - coalesce(r.sm_active_ppm_sum, 0) END
            AS sm_active_ppm_sum,
        CASE WHEN j.is_stale THEN 0 ELSE j.power_mw_n - coalesce(r.power_mw_n, 0) END
            AS power_mw_n,
        CASE WHEN j.is_stale THEN 0 ELSE j.power_mw_sum - coalesce(r.power_mw_sum, 0) END
            AS power_mw_sum,
        CASE WHEN j.is_stale THEN 0 ELSE j.throttle_known - coalesce(r.throttle_known, 0) END
            AS throttle_known,
        CASE WHEN j.is_stale THEN 0 ELSE j.throttled - coalesce(r.throttled, 0) END
            AS throttled
    FROM judged j
    LEFT JOIN repeated r ON j.host = r.host AND j.gpu_uuid = r.gpu_uuid AND j.bucket_us = r.hour_us
)
