-- Results of the benchmark runs that bear the name of a job: one for each table of a file.
SELECT run_id, host, gpu_uuid, test, size, dtype, value, unit, n, ranks, nodes, wrong, software
FROM bench_results
WHERE run_id = :job_id
    OR substr(run_id, 1, length(:job_id) + 1) = concat(:job_id, '#')
    OR substr(run_id, 1, length(:job_id) + 1) = concat(:job_id, ',')
ORDER BY run_id, host, gpu_uuid, test, size, dtype
