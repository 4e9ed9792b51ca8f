-- Rank rows of the steps in [first_step, last_step], as step_rows gives them. An engine gives them in
-- no order: putting two million rows in order takes longer than all else, and a matrix has its own.
WITH newest AS (
    SELECT step, max(attempt) AS attempt
    FROM steps
    WHERE step BETWEEN :first_step AND :last_step
    GROUP BY step
)
SELECT
    s.attempt, s.step, s.rank, s.start_us, s.duration_us, s.compute_us, s.comm_us, s.transfer_us,
    s.wait_us, s.input_us, s.checkpoint_us, s.h2d_us, s.gc_us, s.other_us, s.collective_us,
    s.tokens, s.seq_sq_sum, s.loss
FROM steps s
JOIN newest n ON s.step = n.step AND s.attempt = n.attempt
WHERE s.step BETWEEN :first_step AND :last_step
