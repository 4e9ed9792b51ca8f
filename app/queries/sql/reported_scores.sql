-- What the straggler reports of other tools say of ranks, newest report first.
SELECT attempt, report, tool, at_us, step, metric, listed, rank, host, score, unit, flagged,
    ranks_total, source
FROM reported_scores
ORDER BY at_us DESC NULLS LAST, report DESC, metric, listed DESC, score, rank
LIMIT :limit_rows
