"""Samples of devices for tests, from plain rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from steptax.app.compute.devices.series import NO_MASK, DeviceSeries, SeriesName, build_series

SECOND_US = 1_000_000


def series(rows: Iterable[Mapping[str, Any]], end_us: int | None = None) -> DeviceSeries:
    """Rows with ``gpu_uuid``, ``ts_us`` and columns of ``device_samples`` as one object."""
    found = list(rows)
    names = [
        SeriesName(
            row.get("host", "node"),
            row["gpu_uuid"],
            row.get("monitor", "nvml"),
            row.get("gpu_model", "H100"),
        )
        for row in found
    ]
    order = tuple(dict.fromkeys(names))
    columns = {
        key
        for row in found
        for key, value in row.items()
        if isinstance(value, (int, float)) and key not in ("ts_us", "throttle_reasons")
    }

    def numbers(name: str) -> Any:
        told = [row.get(name) for row in found]
        return np.array([np.nan if value is None else float(value) for value in told])

    masks = [row.get("throttle_reasons") for row in found]
    return build_series(
        order,
        np.array([order.index(name) for name in names], dtype=np.int64),
        np.array([row["ts_us"] for row in found], dtype=np.int64),
        {name: numbers(name) for name in columns},
        masks=np.array([NO_MASK if mask is None else mask for mask in masks], dtype=np.int64),
        health=np.array([row.get("health") for row in found], dtype=object),
        end_us=end_us,
    )
