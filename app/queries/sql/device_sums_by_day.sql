-- What all devices did on each day (UTC), from the roll-up by hours; means are of samples that tell
-- it. An hour in which nothing of a device moves, to the last digit, repeats an old value (a
-- collector that hangs), and so do the minutes beside it that say the same: their samples are
-- counted apart and say nothing.
-- include hours_told
, days AS (
    SELECT *, max(CASE WHEN NOT is_stale THEN temperature_mc_max END) OVER (PARTITION BY day_us)
            AS hottest_mc
    FROM (
        SELECT *, concat(host, ' ', gpu_uuid) AS device,
            CAST(floor(bucket_us / 8.64e10) AS BIGINT) * 86400000000 AS day_us
        FROM hours
    ) AS placed
    WHERE (:first_us IS NULL OR day_us >= :first_us)
        AND (:last_us IS NULL OR day_us <= :last_us)
)
SELECT day_us AS bucket_us,
    count(DISTINCT device) AS devices,
    count(DISTINCT host) AS hosts,
    CAST(sum(samples) AS BIGINT) AS samples,
    CAST(sum(stale_samples) AS BIGINT) AS stale_samples,
    sum(util_ppm_sum) / 1e6 / nullif(sum(util_ppm_n), 0) AS util_ratio,
    sum(sm_active_ppm_sum) / 1e6 / nullif(sum(sm_active_ppm_n), 0) AS sm_active_ratio,
    sum(power_mw_sum) / 1e3 / nullif(sum(power_mw_n), 0) AS power_w,
    max(CASE WHEN NOT is_stale THEN power_mw_max END) / 1e3 AS power_max_w,
    max(CASE WHEN NOT is_stale THEN temperature_mc_max END) / 1e3 AS temperature_max_c,
    min(CASE WHEN NOT is_stale AND temperature_mc_max = hottest_mc THEN device END) AS hottest,
    sum(throttled) * 1e0 / nullif(sum(throttle_known), 0) AS throttled_ratio,
    CAST(sum(unhealthy) AS BIGINT) AS unhealthy_samples
FROM days
GROUP BY day_us
ORDER BY day_us
