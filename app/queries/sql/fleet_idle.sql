-- How much of what devices told of themselves they were hardly used, from the roll-up by hours. An
-- hour in which nothing of a device moves, to the last digit, repeats an old value: its samples say
-- nothing, nor do those of the minutes beside it that repeat the same.
-- include hours_told
SELECT count(DISTINCT concat(host, ' ', gpu_uuid)) AS devices,
    count(DISTINCT host) AS hosts,
    CAST(sum(util_ppm_n) AS BIGINT) AS samples,
    CAST(sum(util_bin_0) AS BIGINT) AS idle_samples,
    CAST(sum(stale_samples) AS BIGINT) AS stale_samples,
    sum(util_ppm_sum) / 1e6 / nullif(sum(util_ppm_n), 0) AS util_ratio,
    min(first_us) AS first_us,
    max(last_us) AS last_us
FROM hours
