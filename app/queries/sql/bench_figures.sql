-- Benchmark figures of devices and of all ranks together, with their spread.
SELECT run_id, host, gpu_uuid, gpu_model, test, size, dtype, value, unit, p5, p50, p95, p99, n, repeats,
    clock_mhz, power_w, temperature_c, ranks, nodes, wrong, software,
    coalesce(measured_at_us, ingested_at_us) AS measured_at_us
FROM bench_results
WHERE rank IS NULL AND value IS NOT NULL
ORDER BY run_id, host, gpu_uuid, test, size, dtype
