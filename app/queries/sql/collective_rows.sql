-- Operations of a job on each rank, the newest sequence numbers first.
SELECT comm_id, op, seq, rank, rank_scope, dtype, shape, bytes, n_ranks, enqueued_us, duration_us
FROM collectives
ORDER BY seq DESC, comm_id, op, rank
LIMIT :limit_rows
