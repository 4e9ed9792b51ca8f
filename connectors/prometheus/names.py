"""Which metric is which column: names, units and bounds of exporters of devices and of links.

dcgm-exporter: etc/default-counters.csv of https://github.com/NVIDIA/dcgm-exporter and the field
identifiers of the DCGM API reference. AMD: the metrics list of
https://github.com/ROCm/device-metrics-exporter. node_exporter: its collector ``infiniband``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: The largest whole number that a float still tells from its neighbour.
_EXACT = 2.0**53


@dataclass(frozen=True)
class Field:
    """A metric: value times ``scale`` is ``column``; outside ``low`` to ``high`` it is none.

    ``of_card`` holds for the whole card also where it is told of a MIG instance; ``whole`` is
    a whole number; ``rank`` orders metrics of the same column, the least first; ``adds`` is summed
    over metrics, ``most`` is the greatest of several series.
    """

    column: str
    scale: float = 1.0
    low: float = 0.0
    high: float = _EXACT
    whole: bool = False
    of_card: bool = False
    rank: int = 0
    adds: bool = False
    most: bool = False
    only: tuple[str, str] | None = None
    """A label and the value that it must have, in part."""


#: The engine-active ratio has no column: it tells whether the profiling counters count at all.
ENGINE = "engine_active_ratio"
#: Parts of the memory of a card, for the sum of all.
MEMORY_FREE, MEMORY_RESERVED = "memory_free_bytes", "memory_reserved_bytes"


def _percent(column: str) -> Field:
    return Field(column, scale=0.01, high=100.0)


def _ratio(column: str) -> Field:
    return Field(column, high=1.0)


def _degrees(column: str, rank: int = 0) -> Field:
    return Field(column, low=-50.0, high=200.0, of_card=True, rank=rank)


def _memory_degrees(column: str) -> Field:
    # Devices without such a sensor say 0.
    return Field(column, low=1.0, high=200.0, of_card=True)


def _mib(column: str) -> Field:
    return Field(column, scale=float(1 << 20), high=float(1 << 24), whole=True)


def _watts(column: str, rank: int = 0) -> Field:
    return Field(column, high=20_000.0, of_card=True, rank=rank)


def _mhz(column: str, only: tuple[str, str] | None = None) -> Field:
    return Field(column, high=20_000.0, of_card=True, most=True, only=only)


def _count(column: str, *, high: float = _EXACT, rank: int = 0, adds: bool = False) -> Field:
    return Field(column, high=high, whole=True, of_card=True, rank=rank, adds=adds)


DEVICE_FIELDS: Mapping[str, Field] = {
    "DCGM_FI_DEV_GPU_UTIL": _percent("util_ratio"),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _ratio(ENGINE),
    "DCGM_FI_PROF_SM_ACTIVE": _ratio("sm_active_ratio"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _ratio("tensor_active_ratio"),
    "DCGM_FI_DEV_FB_USED": _mib("memory_used_bytes"),
    "DCGM_FI_DEV_FB_FREE": _mib(MEMORY_FREE),
    "DCGM_FI_DEV_FB_RESERVED": _mib(MEMORY_RESERVED),
    "DCGM_FI_DEV_FB_TOTAL": _mib("memory_total_bytes"),
    "DCGM_FI_DEV_POWER_USAGE": _watts("power_w"),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": _watts("power_limit_w"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": _watts("power_limit_w", rank=1),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": Field("energy_j", scale=1e-3, of_card=True),
    "DCGM_FI_DEV_GPU_TEMP": _degrees("temperature_c"),
    "DCGM_FI_DEV_MEMORY_TEMP": _memory_degrees("memory_temperature_c"),
    "DCGM_FI_DEV_SM_CLOCK": _mhz("sm_clock_mhz"),
    "DCGM_FI_DEV_MEM_CLOCK": _mhz("memory_clock_mhz"),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": _count("throttle_reasons"),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": _count("throttle_reasons", rank=1),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": _count("ecc_corrected"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _count("ecc_uncorrected"),
    "DCGM_FI_DEV_XID_ERRORS": _count("xid", high=100_000),
    "DCGM_FI_DEV_PCIE_LINK_GEN": Field("pcie_gen", low=1, high=16, whole=True, of_card=True),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": Field("pcie_width", low=1, high=64, whole=True, of_card=True),
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": Field(
        "pcie_gen_max", low=1, high=16, whole=True, of_card=True
    ),
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": Field(
        "pcie_width_max", low=1, high=64, whole=True, of_card=True
    ),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": _count("remapped_rows", adds=True),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": _count("remapped_rows", adds=True),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": _count("nvlink_errors", adds=True),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": _count("nvlink_errors", adds=True),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": _count("nvlink_errors", adds=True),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": _count("nvlink_errors", adds=True),
    # dcgm-exporter 1.
    "dcgm_gpu_utilization": _percent("util_ratio"),
    "dcgm_fb_used": _mib("memory_used_bytes"),
    "dcgm_fb_free": _mib(MEMORY_FREE),
    "dcgm_power_usage": _watts("power_w"),
    "dcgm_total_energy_consumption": Field("energy_j", scale=1e-3, of_card=True),
    "dcgm_gpu_temp": _degrees("temperature_c"),
    "dcgm_memory_temp": _memory_degrees("memory_temperature_c"),
    "dcgm_sm_clock": _mhz("sm_clock_mhz"),
    "dcgm_memory_clock": _mhz("memory_clock_mhz"),
    "dcgm_xid_errors": _count("xid", high=100_000),
    # AMD device-metrics-exporter.
    "gpu_gfx_activity": _percent("util_ratio"),
    "gpu_used_vram": _mib("memory_used_bytes"),
    "gpu_total_vram": _mib("memory_total_bytes"),
    "gpu_package_power": _watts("power_w"),
    "gpu_average_package_power": _watts("power_w", rank=1),
    "gpu_power_usage": _watts("power_w", rank=2),
    "gpu_energy_consumed": Field("energy_j", scale=1e-6, high=1e18, of_card=True),
    "gpu_junction_temperature": _degrees("temperature_c"),
    "gpu_edge_temperature": _degrees("temperature_c", rank=1),
    "gpu_memory_temperature": _memory_degrees("memory_temperature_c"),
    "gpu_clock": _mhz("sm_clock_mhz", ("clock_type", "system")),
    "gpu_ecc_correct_total": _count("ecc_corrected"),
    "gpu_ecc_uncorrect_total": _count("ecc_uncorrected"),
}
#: Beginnings of names that the exporters of devices give.
DEVICE_NAMES = ("DCGM_FI_", "dcgm_", "gpu_", "pcie_")

_OCTETS = {
    "port_data_received_bytes": "received_bytes",
    "port_data_transmitted_bytes": "transmitted_bytes",
}
_EVENTS = {
    "port_errors_received": "errors_received",
    "port_discards_received": "discards_received",
    "port_discards_transmitted": "discards_transmitted",
    "link_downed": "link_downed",
    "link_error_recovery": "link_recovered",
}
LINK_NAMES = ("node_infiniband_",)
LINK_FIELDS: Mapping[str, Field] = {
    **{
        f"node_infiniband_{n}_total": Field(c, high=2.0**62, whole=True) for n, c in _OCTETS.items()
    },
    # Before node_exporter 0.16 names had no ending, and values were words of four bytes.
    **{
        f"node_infiniband_{n}": Field(c, scale=4.0, high=2.0**60, whole=True)
        for n, c in _OCTETS.items()
    },
    **{f"node_infiniband_{n}_total": _count(c) for n, c in _EVENTS.items()},
    **{f"node_infiniband_{n}": _count(c) for n, c in _EVENTS.items()},
    # 32 bits wide in the devices: at its end it stands still and says nothing more.
    "node_infiniband_port_transmit_wait_total": _count("transmit_wait_ticks", high=2.0**32 - 2),
    "node_infiniband_rate_bytes_per_second": Field("rate_bytes_per_s"),
    "node_infiniband_state_id": _count("state_id", high=16),
    "node_infiniband_physical_state_id": _count("physical_state_id", high=16),
}


def is_blank(value: float) -> bool:
    """Whether ``value`` is one of DCGM's codes for a value that is not there.

    dcgm_structs.h: 0x7ffffff0 of 32 bits, 0x7ffffffffffffff0 of 64 bits, 2^47 as a float, each with
    the reasons in the fifteen numbers from there on.
    """
    return (
        2147483632 <= value <= 2147483647
        or 140737488355328 <= value <= 140737488355343
        or value >= 9.2233720368547e18
    )
