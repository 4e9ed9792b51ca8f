-- Calls, mean and median time of each kernel on each rank; of sources that name no kernels, of each
-- type of operation that computes.
SELECT
    rank,
    COALESCE(name, op_type) AS kernel,
    count(*) AS calls,
    avg(duration_ns) AS mean_ns,
    percentile_cont(0.5e0) WITHIN GROUP (ORDER BY duration_ns) AS median_ns
FROM ops
WHERE op_type IN ('forward-compute', 'backward-compute', 'kernel')
GROUP BY rank, COALESCE(name, op_type)
ORDER BY rank, kernel
