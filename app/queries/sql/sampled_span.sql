-- The newest sample of any device.
SELECT max(last_us) AS newest_us
FROM device_days
