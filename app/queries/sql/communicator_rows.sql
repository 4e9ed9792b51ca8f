-- What was last known of every communicator at each of its ranks.
SELECT
    comm_id, rank, rank_scope, name, n_ranks, n_nodes, members, host, pid, device, last_enqueued,
    last_completed, op_counts, state, library
FROM communicators
ORDER BY comm_id, rank
