-- Results of public training benchmarks as they were published or summed up.
SELECT round, submitter, system, benchmark, division, availability, gpu_model, gpus, nodes,
    software, train_s, runs, shortest_s, longest_s, source_url, source
FROM public_results
ORDER BY benchmark, round, submitter, system
