-- Single runs of public training benchmarks, as their logs tell them.
SELECT round, submitter, system, benchmark, run, division, availability, gpu_model, gpus, nodes,
    software, status, train_s, scaling_factor, source
FROM public_runs
ORDER BY benchmark, round, submitter, system, run
