-- Per-rank step rows derived from a per-operation trace: the step's span over all operations, and
-- the rank's own forward and backward computing in it.
WITH span AS (
    SELECT step, min(start_ns) AS start_ns, max(start_ns + duration_ns) AS end_ns
    FROM ops
    GROUP BY step
)
SELECT
    o.step, o.rank, max(o.dp) AS dp, max(o.pp) AS pp,
    max(span.end_ns - span.start_ns) AS duration_ns,
    CAST(sum(CASE WHEN o.op_type IN ('forward-compute', 'backward-compute')
        THEN o.duration_ns ELSE 0 END) AS BIGINT) AS compute_ns
FROM ops o
JOIN span ON o.step = span.step
GROUP BY o.step, o.rank
ORDER BY o.step, o.rank
