"""NVML as nvidia-ml-py gives it, with readings that three real devices printed of themselves.

The values are those of ``nvidia-smi -q -x`` on an A100 split by MIG (driver 535), a T4 (515) and an
RTX 3080 (595), as published with telegraf's plugin ``nvidia_smi``; what those say N/A for answers
with the library's own error. Structures, constants and errors are those of the library itself.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pynvml

MIB = 1 << 20
NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
LOST = pynvml.NVML_ERROR_GPU_IS_LOST


def _utilization(gpu: int, memory: int) -> Any:
    found = pynvml.c_nvmlUtilization_t()
    found.gpu, found.memory = gpu, memory
    return found


def _memory(total_mib: int, used_mib: int) -> Any:
    found = pynvml.c_nvmlMemory_t()
    found.total, found.used = total_mib * MIB, used_mib * MIB
    return found


def a100() -> dict[str, Any]:
    return {
        "UUID": "GPU-513536b6-7d19-9063-b049-1e69664bb298",
        "Name": "NVIDIA A100-SXM4-80GB",
        "UtilizationRates": NOT_SUPPORTED,
        "MemoryInfo": _memory(81920, 50),
        "PowerUsage": 67030,
        "EnforcedPowerLimit": 500000,
        "TotalEnergyConsumption": 91234567,
        "Temperature": 27,
        "ClockInfo": {1: 1275, 2: 1593},
        "Reasons": 0,
        "TotalEccErrors": {0: 0, 1: 0},
        "RemappedRows": (0, 0, 0, 0),
        "Pcie": (4, 16, 4, 16),
        "MigMode": [1, 1],
        "ComputeRunningProcesses": [],
        "fields": {82: 44, 38: 0, 45: 0, 52: 0, 59: 0},
        "links": [1] * 12,
    }


def t4() -> dict[str, Any]:
    return {
        "UUID": "GPU-d37e67a5-91dd-3774-a5cb-99096249601a",
        "Name": "Tesla T4",
        "UtilizationRates": _utilization(0, 0),
        "MemoryInfo": _memory(15360, 1032),
        "PowerUsage": 26780,
        "EnforcedPowerLimit": 70000,
        "TotalEnergyConsumption": 5123456,
        "Temperature": 40,
        "ClockInfo": {1: 585, 2: 5000},
        "Reasons": 1,
        "TotalEccErrors": {0: 0, 1: 0},
        "RemappedRows": NOT_SUPPORTED,
        "Pcie": (3, 8, 3, 16),
        "MigMode": NOT_SUPPORTED,
        "ComputeRunningProcesses": [SimpleNamespace(pid=5762, usedGpuMemory=1005 * MIB)],
        "fields": {},
        "links": [],
    }


def rtx3080() -> dict[str, Any]:
    return {
        "UUID": "GPU-19d6d965-2acc-f646-00f8-4c76979aabb4",
        "Name": "NVIDIA GeForce RTX 3080",
        "UtilizationRates": _utilization(65, 9),
        "MemoryInfo": _memory(10240, 9184),
        "PowerUsage": 139620,
        "EnforcedPowerLimit": 320000,
        "TotalEnergyConsumption": NOT_SUPPORTED,
        "Temperature": 27,
        "ClockInfo": {1: 1950, 2: 9251},
        "Reasons": 4,
        "TotalEccErrors": NOT_SUPPORTED,
        "RemappedRows": NOT_SUPPORTED,
        "Pcie": (4, 16, 4, 16),
        "MigMode": NOT_SUPPORTED,
        "ComputeRunningProcesses": [],
        "fields": {},
        "links": [],
    }


class FakeNvml:
    """Answers as the library does. ``absent`` are functions that this version of it has not,
    ``unknown`` those that the driver has not.

    ``driver`` is an error number while there is no driver; handles do not outlive ``nvmlShutdown``.
    """

    def __init__(
        self, *devices: dict[str, Any], absent: tuple[str, ...] = (), unknown: tuple[str, ...] = ()
    ) -> None:
        self.devices = list(devices) or [a100(), t4(), rtx3080()]
        self.absent = absent
        self.unknown = unknown
        self.driver: int | None = None
        self.lost: set[int] = set()
        self.xids: list[tuple[int, int]] = []
        self.calls: Counter[str] = Counter()
        self.life = 0
        self.up = False

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or name in self.absent:
            raise AttributeError(name)
        if name.startswith("nvmlEventType"):
            return getattr(pynvml, name)
        getattr(pynvml, name)  # a function that the real library has not is a fault of the caller

        def call(*arguments: Any) -> Any:
            self.calls[name] += 1
            if name in self.unknown:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            return self._call(name, *arguments)

        return call

    def _call(self, name: str, *arguments: Any) -> Any:
        if name == "nvmlInit":
            if self.driver is not None:
                raise pynvml.NVMLError(self.driver)
            self.up, self.life = True, self.life + 1
            return None
        if name == "nvmlShutdown":
            self.up = False
            return None
        if not self.up or self.driver is not None:
            raise pynvml.NVMLError(self.driver or pynvml.NVML_ERROR_UNINITIALIZED)
        if name == "nvmlSystemGetDriverVersion":
            return "535.54.03"
        if name == "nvmlDeviceGetCount":
            return len(self.devices)
        if name == "nvmlDeviceGetHandleByIndex":
            self._alive(arguments[0])
            return (self.life, arguments[0])
        if name == "nvmlEventSetCreate":
            return "events"
        if name == "nvmlEventSetWait_v2":
            if not self.xids:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
            index, xid = self.xids.pop(0)
            return SimpleNamespace(device=(self.life, index), eventData=xid)
        return self._device(name.removeprefix("nvmlDevice").removeprefix("Get"), *arguments)

    def _alive(self, index: int) -> None:
        if index in self.lost:
            raise pynvml.NVMLError(LOST)

    def _device(self, what: str, handle: tuple[int, int], *arguments: Any) -> Any:
        life, index = handle
        assert life == self.life, "a handle was used after the driver went away"
        self._alive(index)
        device = self.devices[index]
        if what == "RegisterEvents":
            return None
        if what == "FieldValues":
            return [self._field(device, number) for number in arguments[0]]
        if what == "NvLinkState":
            if arguments[0] >= len(device["links"]):
                raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
            return device["links"][arguments[0]]
        pcie = ("CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration")
        if what in (*pcie, "MaxPcieLinkWidth"):
            return device["Pcie"][(*pcie, "MaxPcieLinkWidth").index(what)]
        if what.startswith("CurrentClocks"):
            what = "Reasons"
        found = device["Temperature" if what == "TemperatureV" else what]
        if isinstance(found, int) and found == NOT_SUPPORTED and what not in ("Reasons",):
            raise pynvml.NVMLError(found)
        return found[arguments[0]] if isinstance(found, dict) else found

    @staticmethod
    def _field(device: dict[str, Any], asked: int | tuple[int, int]) -> Any:
        """A field, or one of a link: those that the device has are in ``fields``."""
        found = pynvml.c_nvmlFieldValue_t()
        found.nvmlReturn = 0 if asked in device["fields"] else NOT_SUPPORTED
        # temperatures come as unsigned int, error counters as unsigned long long
        found.valueType = 1 if asked == 82 else 3
        if asked == 82:
            found.value.uiVal = device["fields"].get(asked, 0)
        else:
            found.value.ullVal = device["fields"].get(asked, 0)
        return found
