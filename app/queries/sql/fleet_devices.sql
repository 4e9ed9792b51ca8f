-- Devices and hosts of ranks, where more than one job names the host or the device.
WITH placed AS (
    SELECT job_id, host, gpu_uuid, gpu_index, count(*) AS rank_count
    FROM ranks
    WHERE gpu_uuid IS NOT NULL OR host IS NOT NULL
    GROUP BY job_id, host, gpu_uuid, gpu_index
),
shared_hosts AS (
    SELECT host FROM placed WHERE host IS NOT NULL GROUP BY host HAVING count(DISTINCT job_id) > 1
),
shared_uuids AS (
    SELECT gpu_uuid FROM placed WHERE gpu_uuid IS NOT NULL
    GROUP BY gpu_uuid HAVING count(DISTINCT job_id) > 1
)
SELECT job_id, host, gpu_uuid, gpu_index, rank_count
FROM placed
WHERE host IN (SELECT host FROM shared_hosts)
    OR gpu_uuid IN (SELECT gpu_uuid FROM shared_uuids)
ORDER BY job_id, host NULLS LAST, gpu_uuid NULLS LAST, gpu_index NULLS LAST
