-- How many devices of each host have said something of themselves.
SELECT host, count(DISTINCT gpu_uuid) AS device_count
FROM device_samples
GROUP BY host
ORDER BY host
