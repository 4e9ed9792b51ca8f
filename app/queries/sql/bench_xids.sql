-- Xid errors of devices since a moment.
SELECT host, gpu_uuid, xid, max(ts_us) AS ts_us
FROM device_samples
WHERE xid > 0 AND ts_us >= :since_us
GROUP BY host, gpu_uuid, xid
ORDER BY host, gpu_uuid, xid NULLS LAST
