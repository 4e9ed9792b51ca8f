-- Samples in [first_us, last_us) of the devices called gpu_uuids. An engine gives them in no order:
-- they are many, and what computes with them orders them anyway.
SELECT
    host, gpu_uuid, split_part(source, ':', 1) AS monitor, ts_us, util_ratio, sm_active_ratio,
    memory_used_bytes, power_w, energy_j, temperature_c, sm_clock_mhz, throttle_reasons,
    ecc_corrected, ecc_uncorrected, xid, pcie_gen, pcie_width, nvlink_errors, health, mig_enabled,
    memory_temperature_c, memory_clock_mhz, power_limit_w, remapped_rows, pcie_gen_max,
    pcie_width_max, nvlink_up, processes
FROM device_samples
WHERE ts_us >= :first_us AND ts_us < :last_us AND array_contains(:gpu_uuids, gpu_uuid)
