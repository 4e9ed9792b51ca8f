-- Between which times the quantile_ratio quantile of the ranks' work lies, by blocks of step_block
-- steps (see history_bins): the least work that this share of the reports does not exceed. Both
-- ends are whole microseconds of one bin, whose middle is within 1 / 256 of it. A share of 7e-2 of
-- 100 reports is a little more than seven in binary, and means seven.
-- include work_bins
, counted AS (
    SELECT
        block_step, work_bin,
        sum(row_count) OVER (
            PARTITION BY block_step ORDER BY work_bin
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS up_to,
        sum(row_count) OVER (PARTITION BY block_step) AS reports
    FROM bins
),
found AS (
    SELECT block_step, reports, min(work_bin) AS work_bin
    FROM counted
    WHERE up_to >= :quantile_ratio * reports * (1e0 - 1e-12)
    GROUP BY block_step, reports
),
placed AS (
    SELECT *, CAST(greatest(floor(work_bin / 1.28e2) - 1, 0) AS INT) AS shift
    FROM found
)
SELECT
    block_step,
    CAST(reports AS BIGINT) AS row_count,
    (work_bin - shift * 128) << shift AS work_low_us,
    ((work_bin - shift * 128 + 1) << shift) - 1 AS work_high_us
FROM placed
ORDER BY block_step
