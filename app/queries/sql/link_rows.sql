-- What a job's link probes measured, probe by probe.
SELECT attempt, step, rank, peer, bytes, duration_us
FROM link_probes
ORDER BY attempt, step, rank, peer
