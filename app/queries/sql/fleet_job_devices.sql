-- How many ranks of each job run on each host and hold each device, as far as they say so.
SELECT job_id, host, gpu_uuid, count(*) AS rank_count
FROM ranks
WHERE host IS NOT NULL OR gpu_uuid IS NOT NULL
GROUP BY job_id, host, gpu_uuid
ORDER BY job_id, host NULLS LAST, gpu_uuid NULLS LAST
