"""Which functions of NVML are asked, and what its error numbers mean."""

from __future__ import annotations

from typing import Any, NamedTuple

#: Samples between two readings of what changes slowly, and between two tries of what failed.
SLOW_EVERY = 10
RETRY_EVERY = 60
#: Xids taken at one sample: a device that storms must not hold the others up.
EVENTS_AT_ONCE = 64
LINKS = 36

#: NVML's error numbers, from its API reference, as they are told.
ERRORS = {
    1: "driver not initialised",
    3: "not supported",
    4: "no permission",
    6: "not found",
    9: "driver not loaded",
    10: "timeout",
    12: "NVML library not found",
    13: "not in this driver",
    14: "corrupted infoROM",
    15: "lost",
    16: "reset required",
    18: "driver and library versions differ",
    21: "no data",
    26: "deprecated",
    999: "unknown error",
}
DEVICE_DOWN = (15, 16, 28)
TIMEOUT = 10
NEVER = (2, 3)

Call = tuple[str, tuple[Any, ...]]


class Reading(NamedTuple):
    """One value: the calls that give it, the newest first; the next is tried where one is not."""

    name: str
    calls: tuple[Call, ...]
    slow: bool = False


#: Renamed functions are tried under both names. Numbers are those of NVML's enumerations.
READINGS = (
    Reading("utilization", (("nvmlDeviceGetUtilizationRates", ()),)),
    Reading("memory", (("nvmlDeviceGetMemoryInfo", ()),)),
    Reading("power_mw", (("nvmlDeviceGetPowerUsage", ()),)),
    Reading("energy_mj", (("nvmlDeviceGetTotalEnergyConsumption", ()),)),
    Reading(
        "temperature_c", (("nvmlDeviceGetTemperatureV", (0,)), ("nvmlDeviceGetTemperature", (0,)))
    ),
    Reading("sm_clock_mhz", (("nvmlDeviceGetClockInfo", (1,)),)),
    Reading("memory_clock_mhz", (("nvmlDeviceGetClockInfo", (2,)),)),
    Reading(
        "reasons",
        (
            ("nvmlDeviceGetCurrentClocksEventReasons", ()),
            ("nvmlDeviceGetCurrentClocksThrottleReasons", ()),
        ),
    ),
    Reading("pcie_gen", (("nvmlDeviceGetCurrPcieLinkGeneration", ()),), slow=True),
    Reading("pcie_width", (("nvmlDeviceGetCurrPcieLinkWidth", ()),), slow=True),
    Reading("pcie_gen_max", (("nvmlDeviceGetMaxPcieLinkGeneration", ()),), slow=True),
    Reading("pcie_width_max", (("nvmlDeviceGetMaxPcieLinkWidth", ()),), slow=True),
    Reading("power_limit_mw", (("nvmlDeviceGetEnforcedPowerLimit", ()),), slow=True),
    Reading("ecc_corrected", (("nvmlDeviceGetTotalEccErrors", (0, 0)),), slow=True),
    Reading("ecc_uncorrected", (("nvmlDeviceGetTotalEccErrors", (1, 0)),), slow=True),
    Reading("remapped_rows", (("nvmlDeviceGetRemappedRows", ()),), slow=True),
    Reading("mig_mode", (("nvmlDeviceGetMigMode", ()),), slow=True),
    Reading("processes", (("nvmlDeviceGetComputeRunningProcesses", ()),), slow=True),
)
#: Field ids: memory temperature; NVLink CRC flit, CRC data, replay and recovery errors in total.
MEMORY_TEMPERATURE = 82
NVLINK_ERRORS = (38, 45, 52, 59)
#: The same of NVLink 5, by link: packets received with an error, errors of the link's integrity,
#: recoveries of the link.
NVLINK5_ERRORS = (208, 211, 215)
#: ``nvmlValueType_t``: the part of the union that holds a field's value.
FIELD_TYPES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
