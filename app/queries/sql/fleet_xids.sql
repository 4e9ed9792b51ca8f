-- On how many days (UTC) each device was sampled, by the greatest Xid code that it told that day.
SELECT host, gpu_uuid, xid_max AS xid, max(gpu_model) AS gpu_model, count(*) AS days,
    max(last_us) AS last_us
FROM device_days
GROUP BY host, gpu_uuid, xid_max
ORDER BY host, gpu_uuid, xid_max NULLS LAST
