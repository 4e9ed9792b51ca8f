-- How many ranks of each job run on each host. Of a job whose ranks name none: the hosts that its
-- scheduler names, which hold like parts of it.
WITH of_ranks AS (
    SELECT job_id, host, count(*) AS rank_count
    FROM ranks
    WHERE host IS NOT NULL
    GROUP BY job_id, host
), of_jobs AS (
    SELECT job_id, trim(host) AS host, 1 AS rank_count
    FROM (
        SELECT job_id, explode(split(hosts, ',')) AS host
        FROM jobs
        WHERE hosts <> '' AND job_id NOT IN (SELECT job_id FROM of_ranks)
    )
)
SELECT job_id, host, rank_count FROM of_ranks
UNION ALL
SELECT job_id, host, rank_count FROM of_jobs
ORDER BY job_id, host NULLS LAST
