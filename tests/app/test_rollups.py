"""Roll-ups equal what raw rows give, whatever was appended, ingested, merged, lost or made anew."""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from steptax.app.compute.causes import throttle
from steptax.app.errors import IntegrityError
from steptax.app.lake import Lake, rollups
from steptax.app.lake.compact import compact
from steptax.app.lake.ingest import ingest
from steptax.app.lake.kept import kept_parts
from steptax.app.lake.retain import retain
from steptax.app.queries import DuckEngine
from steptax.app.queries.asked import Asked
from steptax.app.schema import Batch, table
from steptax.app.schema import rollups as declared
from steptax.app.schema.rollup import Rollup
from steptax.app.schema.rollups import (
    DAY_US,
    DEVICES,
    HOUR_US,
    MINUTE_US,
    RANK_WINDOWS,
    STEP_TOTALS,
)

NOON_US = 1_746_000_000_000_000 // DAY_US * DAY_US + DAY_US // 2
Row = dict[str, Any]


def samples(rows: list[Row]) -> pa.Table:
    """Rows of the table as connectors give them."""
    names = {name for row in rows for name in row}
    spec = {f.name: f.type for f in table("device_samples").arrow}
    return pa.table({n: pa.array([r.get(n) for r in rows], spec[n]) for n in sorted(names)})


def days(lake: Lake, **span: int | None) -> list[Row]:
    span = {"first_us": None, "last_us": None, **span}
    return DuckEngine(lake).run("device_day_rows", **span).to_pylist()  # type: ignore[no-any-return]


def level_of(lake: Lake, level: str) -> list[Row]:
    """The level as it is merged, sorted."""
    engine = DuckEngine(lake)
    stored, fresh = engine._stored(DEVICES, level, lake.segments("device_samples"))
    sql = f"({DEVICES.merged_sql(level, stored)})"
    with engine._database.cursor() as cursor:
        if fresh is not None:
            cursor.register(f"_fresh_{level}", fresh)
        found = cursor.sql(f"SELECT * FROM {sql} ORDER BY host, gpu_uuid, bucket_us")
        return found.to_arrow_table().to_pylist()  # type: ignore[no-any-return]


def by_hand(rows: list[Row], width_us: int) -> dict[tuple[str, str, int], Row]:
    """What some columns must be, from raw rows in plain Python."""
    groups: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["host"], row["gpu_uuid"], row["ts_us"] // width_us * width_us].append(row)
    found = {}
    for key, own in groups.items():
        power = [
            (round(r["power_w"] * 1000), r["ts_us"])
            for r in own
            if r.get("power_w") is not None and math.isfinite(r["power_w"])
        ]
        masks = [r["throttle_reasons"] for r in own if r.get("throttle_reasons") is not None]
        util = [round(r["util_ratio"] * 1e6) for r in own if r.get("util_ratio") is not None]
        found[key] = {
            "samples": len(own),
            "first_us": min(r["ts_us"] for r in own),
            "last_us": max(r["ts_us"] for r in own),
            "power_mw_n": len(power),
            "power_mw_sum": sum(p for p, _ in power) if power else None,
            "power_mw_max": max((p for p, _ in power), default=None),
            "power_mw_max_at_us": min(((-p, at) for p, at in power), default=(None, None))[1],
            "throttle_known": len(masks),
            "throttled": sum(
                bool(m & throttle.THROTTLING) and not m & throttle.IDLE for m in masks
            ),
            "util_bin_9": sum(u >= 900_000 for u in util),
            "util_bin_0": sum(u < 100_000 for u in util),
            "ecc_corrected_max": max(
                (r["ecc_corrected"] for r in own if r.get("ecc_corrected") is not None),
                default=None,
            ),
        }
    return found


def test_the_bits_are_those_of_throttling() -> None:
    assert (declared.THROTTLING, declared.IDLE) == (throttle.THROTTLING, throttle.IDLE)


_row = st.fixed_dictionaries(
    {
        "host": st.sampled_from(["a", "b"]),
        "gpu_uuid": st.sampled_from(["G0", "G1"]),
        "ts_us": st.integers(0, 3 * DAY_US // 1_000_000).map(lambda s: NOON_US + s * 1_000_000),
    },
    optional={
        # Exact in thousandths, as devices say them, so that plain Python rounds the same way.
        "power_w": st.integers(0, 800).map(float) | st.just(math.nan),
        "util_ratio": st.integers(0, 100).map(lambda p: p / 100),
        "throttle_reasons": st.integers(0, 511),
        "ecc_corrected": st.integers(0, 2**40),
        "gpu_model": st.sampled_from(["H100"]),
        "health": st.sampled_from(["bad", "worse"]),
        **{name: st.integers(-40, 90).map(float) for name in ("temperature_c", "energy_j")},
        **{
            name: st.integers(0, 99)
            for name in ("xid", "memory_used_bytes", "remapped_rows", "nvlink_errors")
        },
    },
)
_deed = st.sampled_from(["append", "ingest", "compact", "lose", "old"])


@settings(max_examples=8)
@given(st.lists(st.tuples(_deed, st.lists(_row, min_size=1, max_size=12)), max_size=5))
def test_whatever_happens_it_equals_what_raw_rows_give(deeds: list[tuple[str, list[Row]]]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollups, "ROLLED_ROWS", 4)
        lake = Lake(Path(folder), create=True)
        stored: dict[tuple[str, str, int], Row] = {}
        for number, (deed, rows) in enumerate(deeds):
            fresh = {(r["host"], r["gpu_uuid"], r["ts_us"]): r for r in rows}
            own = [r for key, r in fresh.items() if key not in stored]
            if deed == "append" and own:
                lake.append("device_samples", samples(own), source="t")
            elif deed == "ingest":
                # What is stored already is left out by the lake.
                batch = Batch("device_samples", samples(list(fresh.values())))
                ingest(lake, [batch], ingest_id=f"{number:024x}", source="t")
            elif deed == "compact":
                compact(lake, minimum=2, grace_s=0)
                own = []
            else:
                own = []
                _damage(lake, deed)
            stored |= {(r["host"], r["gpu_uuid"], r["ts_us"]): r for r in own}
        # ... in every column what one pass over all raw rows gives.
        at_once = rollups.made(DEVICES, lake.read("device_samples"))
        for level, width_us in DEVICES.levels.items():
            found = level_of(lake, level)
            assert found == at_once[level].to_pylist()
            wanted = by_hand(list(stored.values()), width_us)
            assert {(r["host"], r["gpu_uuid"], r["bucket_us"]) for r in found} == set(wanted)
            for row in found:
                one = wanted[row["host"], row["gpu_uuid"], row["bucket_us"]]
                assert {name: row[name] for name in one} == one


def _damage(lake: Lake, deed: str) -> None:
    """``lose``: every second roll-up is gone. ``old``: segments lack a column of today."""
    if deed == "lose":
        for path in sorted((lake.root / "rollups").rglob("*.parquet"))[::2]:
            path.unlink()
        return
    for segment in lake.segments("device_samples"):
        rows = pq.ParquetFile(segment.path).read()
        if "nvlink_up" in rows.column_names:
            pq.write_table(rows.drop_columns(["nvlink_up"]), segment.path)


def many(first_us: int, seconds: int, devices: int = 8, *, host: str = "node-0") -> pa.Table:
    """A sample per second and device."""
    count = seconds * devices
    at = pa.array([first_us + s * 1_000_000 for s in range(seconds) for _ in range(devices)])
    uuid = [f"GPU-{d}" for _ in range(seconds) for d in range(devices)]
    power = [500.0 + (k * 7919) % 200 for k in range(count)]
    return pa.table({"host": [host] * count, "gpu_uuid": uuid, "ts_us": at, "power_w": power})


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(rollups, "ROLLED_ROWS", 500)
    return Lake(tmp_path / "lake", create=True)


def files(lake: Lake) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in (lake.root / "rollups").rglob("*.parquet")}


def test_an_append_touches_nothing_but_its_own(lake: Lake) -> None:
    lake.append("device_samples", many(NOON_US, 300), source="t")
    before = files(lake)
    assert {path.parent.parent.name for path in before} == set(DEVICES.levels)
    lake.append("device_samples", many(NOON_US + 300 * 1_000_000, 300), source="t")
    after = files(lake)
    assert len(after) == 2 * len(before)
    assert before.items() <= after.items()
    assert [(r["samples"], r["gpu_uuid"]) for r in days(lake)] == [
        (600, f"GPU-{d}") for d in range(8)
    ]


def test_readers_open_no_raw_rows_where_there_is_a_roll_up(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append("device_samples", many(NOON_US, 300), source="t")
    wanted = days(lake)
    [segment] = lake.segments("device_samples")
    segment.path.write_bytes(b"not read")
    assert days(lake) == wanted
    # A small one is read itself, and gets none.
    lake.append("device_samples", many(NOON_US + DAY_US, 10), source="t")
    assert len(files(lake)) == len(DEVICES.levels)
    assert {r["bucket_us"]: r["samples"] for r in days(lake)} == {
        NOON_US - DAY_US // 2: 300,
        NOON_US + DAY_US // 2: 10,
    }


def test_a_day_opens_segments_of_that_day_only(lake: Lake) -> None:
    for day in range(3):
        lake.append("device_samples", many(NOON_US + day * DAY_US, 300), source="t")
    second = lake.segments("device_samples")[1]
    for segment in lake.segments("device_samples"):
        if segment.path != second.path:
            for level in DEVICES.levels:
                path = rollups.rollup_path(lake.root, DEVICES, level, segment.path)
                path.write_bytes(b"not read")
    span = {"first_us": second.first, "last_us": second.last}
    begin = second.first // DAY_US * DAY_US
    found = DuckEngine(lake).run("device_day_rows", first_us=begin, last_us=begin + DAY_US - 1)
    assert found["samples"].to_pylist() == [300] * 8
    assert second.first == span["first_us"] == NOON_US + DAY_US


def test_segments_of_before_their_names_told_moments_still_count(lake: Lake) -> None:
    lake.append("device_samples", many(NOON_US, 100), source="t")
    [segment] = lake.segments("device_samples")
    stem, first, last, *rest = segment.path.name.rsplit("-", 4)
    segment.path.rename(segment.path.with_name("-".join([stem, "0", "0", *rest])))
    assert (int(first), int(last)) == (segment.first, segment.last)
    begin = NOON_US // DAY_US * DAY_US
    assert sum(r["samples"] for r in days(lake, first_us=begin, last_us=begin)) == 800


def test_compaction_takes_the_roll_ups_along(lake: Lake) -> None:
    for minute in range(2):
        rows = many(NOON_US + minute * MINUTE_US, 60)
        lake.append("device_samples", rows, source="t")
        lake.append("device_samples", many(NOON_US + minute * MINUTE_US, 60, host="b"), source="t")
    wanted = days(lake)
    compact(lake, minimum=2, grace_s=0)
    (merged,) = lake.segments("device_samples")
    # Before anybody asked: no page waits for it, and who asks reads no raw rows.
    assert {path.name for path in files(lake)} == {merged.path.name}
    assert rollups.lacking(lake.root, DEVICES, [merged]) == []
    assert days(lake) == wanted
    for _ in range(3):
        lake.append("device_samples", many(NOON_US + HOUR_US, 100, host="c"), source="t")
    before = len(files(lake))
    compact(lake, minimum=2, grace_s=0)
    assert len(files(lake)) < before
    assert sum(r["samples"] for r in days(lake)) == 2 * 2 * 60 * 8 + 3 * 100 * 8


def test_a_full_disk_costs_the_roll_up_and_not_the_rows(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(rollups, "write_rollup", full)
        lake.append("device_samples", many(NOON_US, 300), source="t")
        assert not files(lake)
        assert sum(r["samples"] for r in days(lake)) == 2400
    assert sum(r["samples"] for r in days(lake)) == 2400
    assert len(files(lake)) == len(DEVICES.levels)


def test_samples_lie_device_by_device(lake: Lake) -> None:
    rows = many(NOON_US, 50)
    order = pc.sort_indices(rows, [("ts_us", "descending"), ("gpu_uuid", "ascending")])
    lake.append("device_samples", rows.take(order), source="t")
    [segment] = lake.segments("device_samples")
    stored = pq.ParquetFile(segment.path).read(["gpu_uuid", "ts_us", "power_w"])
    keys = list(zip(stored["gpu_uuid"].to_pylist(), stored["ts_us"].to_pylist(), strict=True))
    assert keys == sorted(keys)
    wanted = {
        (u, t): p
        for u, t, p in zip(
            *(rows[c].to_pylist() for c in ("gpu_uuid", "ts_us", "power_w")), strict=True
        )
    }
    assert dict(zip(keys, stored["power_w"].to_pylist(), strict=True)) == wanted


def test_the_command_gives_days(lake: Lake, steptax: Callable[..., Any]) -> None:
    for day in range(3):
        rows = many(NOON_US + day * DAY_US, 100)
        util = pa.array([0.25 * (k % 4) for k in range(rows.num_rows)])
        lake.append("device_samples", rows.append_column("util_ratio", util), source="t")
    days_ = steptax("rollup")["days"]
    assert [d["day_us"] // DAY_US - NOON_US // DAY_US for d in days_] == [0, 1, 2]
    assert {(d["devices"], d["hosts"], d["samples"]) for d in days_} == {(8, 1, 800)}
    power = many(NOON_US, 100)["power_w"].to_pylist()
    assert days_[0]["power_w"] == pytest.approx(sum(power) / 800)
    assert days_[0]["power_max_w"] == max(power)
    assert days_[0]["util_ratio"] == pytest.approx(0.375)
    unknown = ("sm_active_ratio", "temperature_max_c", "hottest", "throttled_ratio")
    assert all(days_[0][name] is None for name in unknown)
    assert steptax("rollup", "--from", "2025-05-01", "--to", "2025-05-01")["days"] == days_[1:2]
    assert steptax("rollup", "--from", "1. May", fails=2)["hint"] == "days are UTC"


def test_compaction_merges_neighbours_in_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steptax.app.lake.compact.TARGET_ROWS", 800)
    # As servers are followed: the names of segments tell nothing of their time.
    for number, minute in enumerate((3, 0, 2, 1)):
        batch = Batch("device_samples", many(NOON_US + minute * MINUTE_US, 60))
        ingest(lake, [batch], ingest_id=f"{number:024x}", source="t")
    compact(lake, minimum=2, grace_s=0)
    spans = sorted((s.first, s.last) for s in lake.segments("device_samples"))
    assert len(spans) == 2
    assert spans[0][1] < spans[1][0]


def test_what_is_no_number_is_not_counted_in_a_file_without_nulls(lake: Lake) -> None:
    rows = many(NOON_US, 100)
    power = pa.array([math.nan, *([1.0] * (rows.num_rows - 1))])
    rows = rows.set_column(rows.column_names.index("power_w"), "power_w", power)
    lake.append("device_samples", rows, source="t")
    assert sum(row["power_mw_n"] for row in days(lake)) == rows.num_rows - 1


@pytest.mark.parametrize(
    ("level", "is_gone"), [*((level, False) for level in DEVICES.levels), ("device_days", True)]
)
def test_buckets_that_hold_the_ends_are_whole(lake: Lake, level: str, is_gone: bool) -> None:
    """Of each half of a bucket there is a segment, or what retention left of it, of its own."""
    width_us = DEVICES.levels[level]
    begin_us = NOON_US // DAY_US * DAY_US
    moments = [begin_us + k * width_us // 2 for k in range(-2, 8)]
    for at_us in moments:
        lake.append("device_samples", many(at_us, 1, devices=1), source="t")
        if is_gone:
            retain(lake, at_us + 1, tables=["device_samples"])
    # From the end of one bucket to the beginning of the next but one.
    span = {"first_us": begin_us + width_us - 1, "last_us": begin_us + 2 * width_us + 1}
    asked = Asked.of("device_day_rows", None, None, None, span)
    parts = [*asked.rolled_segments(lake, level), *asked.kept(lake, level)]
    assert sorted(part.first for part in parts) == moments[2:8]
    if level == "device_days":
        found = days(lake, first_us=begin_us, last_us=begin_us + 2 * width_us + 1)
        assert [row["samples"] for row in found] == [2, 2, 2]


@pytest.mark.parametrize("column", ["energy_j", "memory_used_bytes"])
def test_a_counter_at_its_end_is_no_number(lake: Lake, column: str) -> None:
    """Nothing holds the sum of a day of it: no sample could be stored any more."""
    spec = table("device_samples").arrow.field(column).type
    for value in (1e15, 40.0):
        rows = many(NOON_US + int(value), 100)
        told = pa.array([int(value) if pa.types.is_integer(spec) else value] * rows.num_rows, spec)
        place = rows.column_names.index(column) if column in rows.column_names else -1
        rows = rows.remove_column(place) if place >= 0 else rows
        lake.append("device_samples", rows.append_column(column, told), source="t")
    level = level_of(lake, "device_hours")
    name = {"energy_j": "energy_mj"}.get(column, column)
    assert sum(row["samples"] for row in level) == 2 * sum(row[f"{name}_n"] for row in level)


# -- roll-ups of steps, every column of them --------------------------------------------------


def reports(rows: list[Row]) -> pa.Table:
    """Rows of steps as connectors give them."""
    names = {name for row in rows for name in row}
    spec = {f.name: f.type for f in table("steps").arrow}
    return pa.table({n: pa.array([r.get(n) for r in rows], spec[n]) for n in sorted(names)})


def key_of(row: Row) -> tuple[str, int, int, int]:
    return row["job_id"], row["attempt"], row["step"], row["rank"]


def work_of(row: Row) -> int:
    """A rank's own time before it is ready."""
    own = {n: row.get(f"{n}_us") for n in ("comm", "compute", *_OWN)}
    duration: int = row["duration_us"]
    if own["comm"] is not None:
        return duration - own["comm"]
    if own["compute"] is None:
        return duration
    return sum(own[name] or 0 for name in ("compute", *_OWN))


_OWN = ("input", "checkpoint", "h2d", "gc", "other", "collective")


def told(rows: list[Row], column: str) -> list[Any]:
    """Values of a column that are there."""
    return [row[column] for row in rows if row.get(column) is not None]


def total(values: list[Any]) -> int | None:
    return sum(values) if values else None


def worked(rows: list[Row]) -> Row:
    own = [work_of(row) for row in rows]
    return {"row_count": len(rows), "work_sum": sum(own), "work_max": max(own)}


def step_by_hand(rows: list[Row]) -> Row:
    """What ``STEP_TOTALS`` must be of the rows of one attempt's step."""
    losses = [v for v in told(rows, "loss") if math.isfinite(v) and abs(v) < 9e9]
    began = [row for row in rows if row.get("start_us") is not None]
    return worked(rows) | {
        "first_start_us": min(told(rows, "start_us"), default=None),
        "newest_us": max((r["start_us"] + r["duration_us"] for r in began), default=None),
        "stored_us": max(row["ingested_at_us"] for row in rows),
        "duration_max": max(row["duration_us"] for row in rows),
        "duration_us_sum": sum(row["duration_us"] for row in rows),
        "work_max_rank": min((-work_of(row), row["rank"]) for row in rows)[1],
        "comm_n": len(told(rows, "comm_us")),
        "comm_us_sum": total(told(rows, "comm_us")),
        "compute_n": len(told(rows, "compute_us")),
        "compute_us_sum": total(told(rows, "compute_us")),
        "input_us_sum": total(told(rows, "input_us")),
        "loss_n": len(losses),
        "loss_odd_n": len(told(rows, "loss")) - len(losses),
        "loss_nano_sum": None,
        "loss_low_sum": total([round(v * 10**9) % 2**32 for v in losses]),
        "loss_high_sum": total([round(v * 10**9) // 2**32 for v in losses]),
        "tokens_sum": total(told(rows, "tokens")),
    }


def window_by_hand(rows: list[Row]) -> Row:
    """What ``RANK_WINDOWS`` must be of the rows of a rank in one window."""
    steps = [row["step"] for row in rows]
    return worked(rows) | {
        "first_step": min(steps),
        "last_step": max(steps),
        "wait_us_sum": total(told(rows, "wait_us")),
    }


def of_steps_by_hand(rollup: Rollup, rows: list[Row], width: int) -> list[Row]:
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        own = (*(row[name] for name in rollup.keys), row["step"] // width * width)
        groups[own].append(row)
    by_hand_of = step_by_hand if rollup is STEP_TOTALS else window_by_hand
    names = (*rollup.keys, rollup.bucket)
    return [dict(zip(names, key, strict=True)) | by_hand_of(groups[key]) for key in sorted(groups)]


def of_steps(lake: Lake, rollup: Rollup, width: int) -> list[Row]:
    """The level, or a span of it, as pages get it: what is stored, what is kept, what is small."""
    engine = DuckEngine(lake)
    (level,) = rollup.levels
    gone = [part.path for part in kept_parts(lake, rollup, level)]
    span = width if width in rollup.spans else None
    stored, fresh = engine._stored(rollup, level, lake.segments("steps"), gone, span)
    with engine._database.cursor() as cursor:
        if fresh is not None:
            cursor.register(f"_fresh_{level}", fresh)
        sql = rollup.merged_sql(level, stored, width)
        names = ", ".join((*rollup.keys, rollup.bucket))
        found = cursor.sql(f"SELECT * FROM ({sql}) ORDER BY {names}").to_arrow_table()
    return found.to_pylist()  # type: ignore[no-any-return]


_SOME_US = st.integers(0, 3) | st.integers(-5, 2**40)
_report = st.fixed_dictionaries(
    {
        "job_id": st.sampled_from(["a", "b/c"]),
        "attempt": st.integers(0, 1),
        # Of several windows, and of several spans.
        "step": st.sampled_from([0, 1, 255, 256, 1_023, 1_024, 1_025, 5_000]),
        "rank": st.integers(0, 3),
        "duration_us": _SOME_US,
    },
    optional={
        "start_us": st.integers(0, 9).map(lambda k: NOON_US + k * 1_000_000),
        **{f"{name}_us": _SOME_US | st.none() for name in ("comm", "compute", "wait", *_OWN)},
        "tokens": st.integers(0, 2**40),
        # Eighths, so that billionths of them are whole and nothing is rounded.
        "loss": st.integers(-80, 800).map(lambda k: k / 8)
        | st.sampled_from([math.nan, math.inf, -math.inf, 1e12, -0.0, 8.9e9, -8.9e9]),
    },
)
_step_deed = st.sampled_from(["append", "append", "ingest", "again", "compact", "lose", "retain"])


def report(step: int, rank: int, duration_us: int, loss: float, **more: Any) -> Row:
    same = {"job_id": "a", "attempt": 0, "start_us": NOON_US, "wait_us": 3, "input_us": 2}
    told = {"step": step, "rank": rank, "duration_us": duration_us, "loss": loss, "tokens": 5}
    return same | told | more


#: Two equally slow ranks of a step, in segments that each have a roll-up of their own.
_TIED = [
    ("append", [report(s, r, 9, 0.5 + r, comm_us=1, compute_us=1) for s in (0, 1) for r in ranks])
    for ranks in ([1, 3], [0, 2])
]


@settings(max_examples=12)
@example(deeds=[*_TIED])
@example(deeds=[*_TIED, ("retain", []), *_TIED])
@example(deeds=[_TIED[0], ("retain", []), _TIED[1], ("compact", []), ("again", _TIED[0][1])])
@example(deeds=[_TIED[0], ("retain", _TIED[0][1]), ("retain", [])])
@given(st.lists(st.tuples(_step_deed, st.lists(_report, min_size=1, max_size=12)), max_size=7))
def test_whatever_happens_sums_of_steps_equal_what_raw_rows_give(
    deeds: list[tuple[str, list[Row]]],
) -> None:
    """In every column, of one step, of a window and of a span, also of rows that are gone."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollups, "ROLLED_ROWS", 4)
        patch.setattr(rollups, "FEW_PARTS", 2)
        patch.setattr("steptax.app.lake.retain._TOGETHER", 2)
        lake = Lake(Path(folder), create=True)
        stored: dict[tuple[str, int, int, int], Row] = {}
        gone: set[tuple[str, int, int]] = set()
        for number, (deed, rows) in enumerate(deeds):
            fresh = {key_of(row): row for row in rows}
            fresh = {key: row for key, row in fresh.items() if key not in stored}
            if deed == "append" and fresh:
                lake.append("steps", reports([*fresh.values()]), source="t")
            elif deed in ("ingest", "again"):
                # What is stored is left out by the lake, as are others of a step that is gone.
                late = [*stored.values()] if deed == "again" else []
                late = [{n: v for n, v in row.items() if n != "ingested_at_us"} for row in late]
                batch = [*late, *fresh.values()]
                ingest(
                    lake, [Batch("steps", reports(batch))], ingest_id=f"{number:024x}", source="t"
                )
                fresh = {key: row for key, row in fresh.items() if key[:3] not in gone}
            else:
                fresh = {}
            if deed == "compact":
                compact(lake, minimum=2, grace_s=0)
            elif deed == "lose":
                _damage(lake, deed)
            elif deed == "retain":
                before_us = NOON_US + len(rows) * 1_000_000
                retain(lake, before_us, tables=["steps"], grace_s=0)
            read = {key_of(row): row for row in lake.read("steps").to_pylist()}
            at_us = {key: read[key]["ingested_at_us"] for key in fresh}
            stored |= {key: row | {"ingested_at_us": at_us[key]} for key, row in fresh.items()}
            if deed == "retain":
                # An earlier one may have dropped rows that are newer than this one drops.
                left = {key: row for key, row in stored.items() if key[:3] not in gone}
                newer = {k for k, row in left.items() if row.get("start_us", 0) >= before_us}
                assert newer <= read.keys()
                gone |= {key[:3] for key in stored.keys() - read.keys()}
        for rollup in (STEP_TOTALS, RANK_WINDOWS):
            for width in (*rollup.levels.values(), *rollup.spans):
                wanted = of_steps_by_hand(rollup, [*stored.values()], width)
                assert of_steps(lake, rollup, width) == wanted


def exploded(losses: list[float]) -> list[Row]:
    """Two steps of as many ranks as there are losses."""
    return [report(step, rank, 9, loss) for step in (0, 1) for rank, loss in enumerate(losses)]


@pytest.mark.parametrize("losses", [[1e8] * 300, [-1e8] * 300, [8.9e9, 0.125, -3.5, 1e-9] * 50])
@pytest.mark.parametrize("is_gone", [False, True])
def test_the_loss_of_a_job_that_explodes_is_told(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, losses: list[float], is_gone: bool
) -> None:
    """Its billionths, added up over ranks, are more than 64 bits hold."""
    monkeypatch.setattr(rollups, "ROLLED_ROWS", 100)
    lake.append("steps", reports(exploded(losses)), source="t")
    if is_gone:
        retain(lake, NOON_US + DAY_US, tables=["steps"])
    found = DuckEngine(lake).run("history_loss", job_id="a").to_pylist()
    assert [row["loss"] for row in found] == [
        pytest.approx(math.fsum(losses) / len(losses), rel=1e-9)
    ] * 2


def test_values_that_nothing_can_add_up_stop_no_other_job(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Durations of all ranks in the wrong unit: they are stored, and others are merged."""
    monkeypatch.setattr(rollups, "ROLLED_ROWS", 16)
    for step in range(3):
        rows = [report(step, rank, 2**60, 1.0) for rank in range(16)]
        lake.append("steps", reports(rows), source="t")
        lake.append(
            "steps", reports([row | {"job_id": "b", "duration_us": 9} for row in rows]), source="t"
        )
    assert compact(lake, minimum=2).new_segments == 2
    assert {s.job_id: s.rows for s in lake.segments("steps")} == {"a": 48, "b": 48}
    assert DuckEngine(lake).run("history_span", job_id="b").to_pylist()[0]["row_count"] == 48
    with pytest.raises(IntegrityError, match="more than 64 bits hold") as caught:
        DuckEngine(lake).run("history_span", job_id="a")
    assert "job 'a'" in str(caught.value.where)
    done = retain(lake, NOON_US + DAY_US, tables=["steps"])
    assert [(one.job_id, one.rows) for one in done.dropped] == [("b", 48)]
    assert [(one.job_id, one.rows) for one in done.stayed] == [("a", 48)]
    assert {s.job_id: s.rows for s in lake.segments("steps")} == {"a": 48}
    assert DuckEngine(lake).run("history_span", job_id="b").to_pylist()[0]["row_count"] == 48


@pytest.mark.parametrize("odd", [2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_tokens_that_nobody_can_have_are_not_added_up(lake: Lake, odd: int) -> None:
    rows = [report(0, rank, 9, 1.0, tokens=odd if rank else 7) for rank in range(4)]
    lake.append("steps", reports(rows), source="t")
    engine = DuckEngine(lake)
    assert engine.run("history_summary", job_id="a").num_rows == 1
    (found,) = of_steps(lake, STEP_TOTALS, 1)
    assert found["tokens_sum"] == 7


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 9.5e9, 1e300])
def test_a_loss_that_is_none_is_one_neither_in_rows_nor_in_roll_ups(
    tmp_path: Path, odd: float
) -> None:
    """Of the other ranks alone the mean would look sound as soon as the job is big."""
    lake = Lake(tmp_path, create=True)
    same = {"job_id": "j", "attempt": 0, "step": 1, "duration_us": 10}
    rows = [same | {"rank": r, "loss": odd if r == 0 else 2.0} for r in range(4)]
    spec = {f.name: f.type for f in table("steps").arrow}
    columns = {n: pa.array([r[n] for r in rows], spec[n]) for n in rows[0]}
    lake.append("steps", pa.table(columns), source="test")
    for name in ("loss_by_step", "history_loss"):
        assert DuckEngine(lake).run(name, job_id="j")["loss"].to_pylist() == [None]


def test_a_reader_of_version_2_finds_no_loss_in_sums_it_would_read_as_half() -> None:
    """It divides ``loss_nano_sum``: what that means may not change."""
    loss = next(t for t in STEP_TOTALS.totals if t.name == "loss_nano_sum")
    assert "NULL" in loss.made
