-- Operations of one step, by rank and start.
SELECT rank, op_id, op_type, name, stream, micro_batch, model_chunk, start_ns, duration_ns
FROM ops
WHERE step = :step
ORDER BY rank, start_ns, op_id
