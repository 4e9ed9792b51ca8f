-- What each device did on each day (UTC), from the roll-up.
SELECT *
FROM device_days
WHERE (:first_us IS NULL OR bucket_us >= :first_us) AND (:last_us IS NULL OR bucket_us <= :last_us)
ORDER BY bucket_us, host, gpu_uuid
