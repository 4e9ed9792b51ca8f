-- Where each rank of a job runs.
SELECT rank, host, local_rank, gpu_uuid, gpu_index, tp, pp, dp, cp, ep, pid
FROM ranks
ORDER BY rank
