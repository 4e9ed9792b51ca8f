-- How many ranks of each job run on each host.
SELECT job_id, host, count(*) AS rank_count
FROM ranks
WHERE host IS NOT NULL
GROUP BY job_id, host
ORDER BY job_id, host
