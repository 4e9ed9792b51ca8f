-- Operations of the steps from :first_step to :last_step, for the what-if analysis.
SELECT
    o.job_id, o.step, o.rank, o.op_id, o.op_type, o.name, o.stream, o.dp, o.pp, o.micro_batch,
    o.model_chunk, o.global_chunk, o.group, o.seq, o.bytes, o.start_ns, o.duration_ns
FROM ops o
WHERE o.step BETWEEN :first_step AND :last_step
