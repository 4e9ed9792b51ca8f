-- Where each rank of every job runs.
SELECT job_id, rank, host, local_rank, gpu_uuid, gpu_index, tp, pp, dp, cp, ep, pid
FROM ranks
ORDER BY job_id, rank
