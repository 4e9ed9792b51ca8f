-- Stretches without samples of a device that is sampled: between two minutes, or within one.
-- A distance of more than two and a half usual ones is a gap; the usual one is the device's median.
WITH minutes AS (
    SELECT host, gpu_uuid, samples, first_us, last_us,
        lag(last_us) OVER (PARTITION BY host, gpu_uuid ORDER BY bucket_us) AS before_us
    FROM device_minutes
    WHERE bucket_us >= :first_us AND bucket_us <= :last_us
),
usual AS (
    SELECT host, gpu_uuid, sum(samples) AS samples, max(last_us) AS newest_us,
        percentile_cont(0.5) WITHIN GROUP (
            ORDER BY CASE WHEN samples > 1 THEN (last_us - first_us) * 1e0 / (samples - 1)
                ELSE (first_us - before_us) * 1e0 END
        ) AS every_us
    FROM minutes
    GROUP BY host, gpu_uuid
),
apart AS (
    SELECT m.host, m.gpu_uuid, m.before_us AS start_us, m.first_us AS end_us,
        m.first_us - m.before_us AS without_us, u.every_us,
        false AS is_within
    FROM minutes m JOIN usual u ON m.host = u.host AND m.gpu_uuid = u.gpu_uuid
    WHERE m.first_us - m.before_us > 2.5e0 * u.every_us
    UNION ALL
    -- Within a minute it is known how much is missing and not where.
    SELECT m.host, m.gpu_uuid, m.first_us, m.last_us,
        CAST(m.last_us - m.first_us - (m.samples - 1) * u.every_us AS BIGINT), u.every_us,
        true
    FROM minutes m JOIN usual u ON m.host = u.host AND m.gpu_uuid = u.gpu_uuid
    WHERE m.last_us - m.first_us > (m.samples + 0.5e0) * u.every_us
    UNION ALL
    -- To the end of what is asked for: the device may still be silent.
    SELECT host, gpu_uuid, newest_us, :now_us, :now_us - newest_us, every_us, false
    FROM usual
    WHERE :now_us - newest_us > 2.5e0 * every_us AND :is_live
)
SELECT host, gpu_uuid, start_us, end_us, without_us, every_us, is_within
FROM apart
ORDER BY start_us, end_us, host, gpu_uuid
