-- How many reports of ranks lie in each bin of work, by blocks of step_block steps, a multiple of
-- the window_steps of a window (1: each step). Of a step the newest attempt; of a window of more
-- steps, which several attempts ran in part, the one with the most reports.
-- include work_bins
SELECT block_step, work_bin, row_count
FROM bins
ORDER BY block_step, work_bin
