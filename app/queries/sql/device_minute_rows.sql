-- Samples per device and minute, from the roll-up: where they stop, nothing is known.
SELECT host, gpu_uuid, bucket_us, samples, first_us, last_us
FROM device_minutes
WHERE (:first_us IS NULL OR bucket_us >= :first_us) AND (:last_us IS NULL OR bucket_us <= :last_us)
ORDER BY host, gpu_uuid, bucket_us
