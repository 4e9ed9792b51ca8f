-- Benchmark runs that there are.
SELECT DISTINCT run_id
FROM bench_results
ORDER BY run_id
