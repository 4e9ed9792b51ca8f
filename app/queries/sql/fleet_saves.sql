-- When checkpoints were saved, once each: several ranks may report the same one.
SELECT job_id, start_us
FROM events
WHERE kind = 'checkpoint_save' AND start_us IS NOT NULL
GROUP BY job_id, start_us
ORDER BY job_id, start_us
