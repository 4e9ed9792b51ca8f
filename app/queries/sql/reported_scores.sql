-- What the straggler reports of other tools say of ranks, newest report first.
SELECT attempt, report, tool, at_us, step, metric, listed, rank, host, score, unit, flagged,
    ranks_total, source
FROM reported_scores
ORDER BY at_us DESC NULLS LAST, report DESC NULLS LAST, metric NULLS LAST,
    listed DESC NULLS LAST, score NULLS LAST, rank NULLS LAST, source NULLS LAST
LIMIT :limit_rows
