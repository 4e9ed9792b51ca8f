-- Devices that were sampled in [first_us, last_us): who, by which connector, and how often.
SELECT
    host,
    gpu_uuid,
    split_part(source, ':', 1) AS monitor,
    max(gpu_model) AS gpu_model,
    count(*) AS sample_count
FROM device_samples
WHERE ts_us >= :first_us AND ts_us < :last_us
GROUP BY host, gpu_uuid, split_part(source, ':', 1)
ORDER BY host, gpu_uuid, monitor
