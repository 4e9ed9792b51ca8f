-- What an inventory lists, by cluster and device.
SELECT cluster, gpu_model, count(*) AS nodes, CAST(sum(gpus) AS BIGINT) AS devices
FROM nodes
GROUP BY cluster, gpu_model
ORDER BY cluster, devices DESC, gpu_model NULLS LAST
