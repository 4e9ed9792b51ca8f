"""Taking events together gives what taking each by itself gives."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.connectors.kineto.bulk import bulk
from steptax.connectors.kineto.events import Columns
from steptax.connectors.kineto.fields import DEVICE, NO_NUMBER, Kind
from steptax.connectors.kineto.table import EventTable, Gathered, Texts, rows_of

ODD: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.sampled_from([10**30, -1, 2**62, "17", "1.5", 1e300, float("nan"), [], {}]),
)
WHOLE = st.integers(0, 2**40)
US = st.one_of(
    st.integers(-(10**6), 2**52),
    st.floats(0, 2e15, allow_nan=False).map(lambda us: round(us, 3)),
)
NAMES = st.sampled_from(
    [
        *("gemm", "ncclDevKernel_AllReduce_Sum_f32", "aten::mm", "c10d::allreduce_"),
        *("ProfilerStep#3", "enumerate(DataLoader)#_Iter", "Memcpy HtoD (Pageable -> Device)"),
        *("Memcpy DtoH (Device -> Pageable)", "Memcpy", "cudaLaunchKernel", "gloo:all_reduce"),
        *("Optimizer.step", "x" * 300, ""),
    ]
)
CATEGORIES = st.sampled_from(
    [
        *("kernel", "Kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cpu_op"),
        *("user_annotation", "python_function", "ac2g", "Trace", "gpu_user_annotation"),
    ]
)


def usually(common: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """``common``, and now and then what no writer should write."""
    return st.integers(0, 19).flatmap(lambda n: ODD if n == 0 else common)


ARGS = st.fixed_dictionaries(
    {},
    optional={
        "correlation": usually(WHOLE),
        "stream": usually(st.integers(0, 40)),
        "device": usually(st.integers(0, 7)),
        "Collective name": usually(st.sampled_from(["allreduce", "_allgather_base"])),
        "dtype": usually(st.sampled_from(["Float", "BFloat16"])),
        "In msg nelems": usually(WHOLE),
        "kind": usually(st.sampled_from(["HtoD", "DtoH"])),
    },
)
EVENT = st.fixed_dictionaries(
    {
        "ph": usually(st.sampled_from(["X", "X", "X", "i"])),
        "cat": usually(CATEGORIES),
        "name": usually(NAMES),
        "ts": usually(US),
        "dur": usually(US),
    },
    optional={"tid": usually(st.integers(0, 9)), "args": usually(ARGS)},
)
EVENTS = st.lists(st.one_of(EVENT, EVENT, EVENT, ODD), max_size=12)


def rows(columns: Columns) -> list[dict[str, Any]]:
    return sorted(spelt(columns.table()), key=lambda row: row["row"])


def spelt(table: EventTable) -> list[dict[str, Any]]:
    """Each event of ``table`` with its texts in place of their codes."""
    every = np.arange(len(table))
    texts = {name: table.strings(name, every) for name in ("name", "op", "group", "dtype")}
    fields = table.rows.dtype.names or ()
    found = [dict(zip(fields, row, strict=True)) for row in table.rows.tolist()]
    return [row | {n: told[i] for n, told in texts.items()} for i, row in enumerate(found)]


def without_host(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As the run makes it once it knows of a device."""
    on_device = any(row["kind"] in list(DEVICE) for row in found)
    return [r for r in found if not (on_device and r["kind"] == Kind.HOST)]


def is_host(value: dict[str, Any]) -> bool:
    return value.get("cat") in ("cpu_op", "user_annotation")


@settings(max_examples=500)
@given(EVENTS, st.integers(1, 10**9))
def test_together_is_as_one_by_one(values: list[Any], first: int) -> None:
    one, together = Columns(), Columns()
    for i, value in enumerate(copy.deepcopy(values)):
        one.take(value, first + i)
    together.take_all(values, first)
    assert without_host(rows(together)) == without_host(rows(one))
    # Host operations are not even looked at beside a device.
    host = {first + i for i, v in enumerate(values) if isinstance(v, dict) and is_host(v)}
    wrong = {r for r in one.refused if r.row not in host}
    assert wrong <= set(together.refused) <= set(one.refused)
    assert together.seen == one.seen == len(values)


def test_ordinary_events_are_taken_together() -> None:
    args = {"correlation": 1, "stream": 7, "device": 0}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "tid": 7, "ts": 1, "dur": 2, "args": args}
    call = kernel | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0.5}
    reduce = kernel | {"name": "ncclDevKernel_AllReduce"}
    found = bulk([kernel, reduce, call, {"ph": "M", "name": "process_name"}], 5, Texts())
    assert found.left == [1]
    assert found.rows["row"].tolist() == [5, 7]
    assert found.rows["start_ns"].tolist() == [1000, 500]


def test_where_a_device_works_the_host_is_left_out() -> None:
    mm = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 1, "ts": 1, "dur": 2, "args": {}}
    kernel = mm | {"cat": "kernel", "name": "gemm"}
    assert len(bulk([mm, mm], 1, Texts()).rows) == 2
    assert bulk([mm, kernel, mm], 1, Texts()).rows["row"].tolist() == [2]


TEXT = st.one_of(st.none(), st.text(max_size=2))


def event(kind: Kind, row: int, code: int) -> tuple[int, ...]:
    return (0, 0, 0, NO_NUMBER, -1, row, -1, code, -1, code, -1, int(kind))


def named(names: list[str | None], kind: Kind = Kind.KERNEL) -> EventTable:
    """Events whose name and group are each of ``names``, and which have no other text."""
    texts = Texts()
    rows = rows_of([event(kind, i, texts.code(name)) for i, name in enumerate(names)])
    return EventTable(rows, tuple(texts.known))


class TestTables:
    @given(st.lists(st.lists(TEXT, max_size=5), max_size=4))
    def test_tables_put_together_keep_their_texts(self, parts: list[list[str | None]]) -> None:
        gathered = Gathered()
        for part in parts:
            gathered.add(named(part))
        expected = [name for part in parts for name in part]
        assert gathered.count == len(expected)
        found = gathered.all()
        every = np.arange(len(found))
        assert found.strings("name", every) == found.strings("group", every) == expected
        assert found.strings("op", every) == [None] * len(expected)
        assert len(set(found.texts)) == len(found.texts)
        assert gathered.count == 0

    def test_a_kind_can_be_dropped_and_texts_of_nobody_are_not_kept(self) -> None:
        gathered = Gathered()
        gathered.add(named(["a", "b"], Kind.HOST))
        gathered.add(named(["b", "c"]))
        gathered.drop(Kind.HOST)
        assert gathered.count == 2
        kept = named(["d", "e", "e"]).only(np.array([False, True, True]))
        gathered.add(kept)
        found = gathered.all()
        assert found.strings("name", np.arange(len(found))) == ["b", "c", "e", "e"]
        assert "d" not in found.texts

    def test_adding_does_not_change_what_was_parsed(self) -> None:
        table, gathered = named(["x", "y"]), Gathered()
        gathered.add(named(["y"]))
        before = table.rows.copy()
        gathered.add(table)
        assert np.array_equal(table.rows, before)
        assert table == EventTable(before, table.texts)
        assert table != EventTable(before, ("y", "x"))

    def test_half_of_a_surrogate_pair_is_no_text(self) -> None:
        assert named(["a\ud800b"]).texts == ("a?b",)
