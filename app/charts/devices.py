"""Devices of a job as a table: a row per rank, those out of line first."""

from __future__ import annotations

from steptax.app.charts.tables import Column, Table
from steptax.app.compute.devices.facts import DeviceFacts
from steptax.app.views.devices.text import XIDS, by_rank, finding_text, throttle_words
from steptax.app.views.devices.view import DevicesView

_COLUMNS = (
    Column("rank", "rank", "count", width_px=64),
    Column("host", "node", "text", width_px=110),
    Column("finding", "out of line", "text", width_px=360),
    Column("sm_clock_mhz", "SM clock, MHz", "number", "mean while at work"),
    Column("peers_sm_clock_mhz", "its peers, MHz", "number", "median of the peers' means"),
    Column("throttled_ratio", "held back", "ratio", "share of the time at work"),
    Column("throttled_by", "by", "text", "reasons may come together", 170),
    Column("power_w", "power, W", "number", "mean while at work"),
    Column("power_limit_w", "limit, W", "number", "lowest in force"),
    Column("temperature_c", "mean, °C", "number"),
    Column("temperature_max_c", "highest, °C", "number"),
    Column("util_ratio", "kernel resident", "ratio", "not efficiency"),
    Column("ecc_uncorrected", "ECC uncorrected", "count", "in the window"),
    Column("ecc_corrected", "ECC corrected", "count", "in the window"),
    Column("remapped_rows", "rows remapped", "count", "in the window"),
    Column("xid", "Xid", "text", "codes in the window"),
    Column("pcie", "PCIe", "text", "while at work, of what device and slot can do"),
    Column("nvlink_up", "NVLink up", "count", "lowest number of links"),
    Column("nvlink_errors", "NVLink errors", "count", "in the window"),
    Column("observed_ratio", "observed", "ratio", "share of the window with fresh samples"),
    Column("stale_ratio", "stale", "ratio", "share in which old values were repeated"),
    Column("newest", "newest sample", "time"),
    Column("gpu_model", "device", "text", width_px=170),
    Column("gpu_uuid", "identity", "text", width_px=170),
    Column("unknown", "not known", "text", "why nothing is known of the device", 360),
)


def devices_table(view: DevicesView) -> Table:
    """Every rank; a value that is not known is empty, with the reason in the last column."""
    found = by_rank(view)
    return Table(
        _COLUMNS,
        tuple(_row(f, "; ".join(map(finding_text, found.get(f.rank, ())))) for f in view.facts),
    )


def _row(facts: DeviceFacts, out_of_line: str) -> tuple[object, ...]:
    values: dict[str, object] = {
        "rank": facts.rank,
        "host": facts.host,
        "finding": None if facts.reason is not None else out_of_line or "nothing",
        "peers_sm_clock_mhz": facts["sm_clock_mhz"].peers.value,
        "throttled_by": (throttle_words(facts) or "nothing") if facts.throttled_by else None,
        "xid": _xid(facts),
        "pcie": _pcie(facts),
        "observed_ratio": facts.observed.value,
        "stale_ratio": facts.stale.value,
        "newest": facts.newest_us,
        "gpu_model": facts.gpu_model,
        "gpu_uuid": facts.gpu_uuid,
        "unknown": facts.reason or "",
    }
    return tuple(
        values[column.key] if column.key in values else _figure(facts, column)
        for column in _COLUMNS
    )


def _figure(facts: DeviceFacts, column: Column) -> float | int | None:
    value = facts.value(column.key)
    return round(value) if value is not None and column.kind == "count" else value


def _xid(facts: DeviceFacts) -> str | None:
    if facts.xid_reason is not None:
        return None
    named = [f"{x.code} {XIDS[x.code]}" if x.code in XIDS else str(x.code) for x in facts.xids]
    return ", ".join(named) or "none"


def _pcie(facts: DeviceFacts) -> str | None:
    def end(name: str) -> str:
        value = facts.value(name)
        return "?" if value is None else f"{value:.0f}"

    if facts.value("pcie_gen") is None and facts.value("pcie_width") is None:
        return None
    now = f"gen {end('pcie_gen')} x{end('pcie_width')}"
    most = f"gen {end('pcie_gen_max')} x{end('pcie_width_max')}"
    return f"{now} of {most}"
