"""Taking events together gives what taking each by itself gives."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.connectors.kineto.arrays import (
    coded_texts,
    integers,
    is_valid,
    texts,
    to_arrow,
    to_numpy,
)
from steptax.connectors.kineto.bulk import bulk
from steptax.connectors.kineto.events import Columns
from steptax.connectors.kineto.fields import DEVICE, Kind

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
    found: list[dict[str, Any]] = columns.table().to_pylist()
    return sorted(found, key=lambda row: row["row"])


def without_host(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As the run makes it once it knows of a device."""
    on_device = any(row["kind"] in list(DEVICE) for row in found)
    return [r for r in found if not (on_device and r["kind"] == Kind.HOST)]


def is_host(value: dict[str, Any]) -> bool:
    return value.get("cat") in ("cpu_op", "user_annotation")


@settings(deadline=None, max_examples=500)
@given(EVENTS, st.integers(1, 10**9))
def test_together_is_as_one_by_one(values: list[Any], first: int) -> None:
    one, together = Columns(), Columns()
    for i, value in enumerate(copy.deepcopy(values)):
        one.take(value, first + i)
    together.take_all(values, first)
    assert without_host(rows(together)) == without_host(rows(one))
    # Host operations are not even looked at beside a device.
    host = {first + i for i, v in enumerate(values) if isinstance(v, dict) and is_host(v)}
    wrong = {r for r in one.rejects if r.row not in host}
    assert wrong <= set(together.rejects) <= set(one.rejects)
    assert together.seen == one.seen == len(values)


def test_ordinary_events_are_taken_together() -> None:
    args = {"correlation": 1, "stream": 7, "device": 0}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "tid": 7, "ts": 1, "dur": 2, "args": args}
    call = kernel | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0.5}
    reduce = kernel | {"name": "ncclDevKernel_AllReduce"}
    found = bulk([kernel, reduce, call, {"ph": "M", "name": "process_name"}], 5)
    assert found.left == [1]
    assert found.table["row"].to_pylist() == [5, 7]
    assert found.table["start_ns"].to_pylist() == [1000, 500]


def test_where_a_device_works_the_host_is_left_out() -> None:
    mm = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 1, "ts": 1, "dur": 2, "args": {}}
    kernel = mm | {"cat": "kernel", "name": "gemm"}
    assert bulk([mm, mm], 1).table.num_rows == 2
    assert bulk([mm, kernel, mm], 1).table["row"].to_pylist() == [2]


class TestArrays:
    @given(st.lists(st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))))
    @pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
    def test_integers(self, kind: pa.DataType, values: list[int | None]) -> None:
        found = integers(values, kind)
        assert found.equals(pa.array(values, kind))
        column = pa.chunked_array([found.slice(0, 2), found.slice(2)])
        assert is_valid(column).tolist() == [v is not None for v in values]
        assert to_numpy(column.drop_null()).tolist() == [v for v in values if v is not None]

    @given(st.lists(st.one_of(st.none(), st.text(max_size=4))))
    def test_texts(self, values: list[str | None]) -> None:
        assert coded_texts(values).to_pylist() == values
        given_ = [v for v in values if v is not None]
        assert texts(given_).equals(pa.array(given_, pa.string()))

    def test_half_of_a_surrogate_pair_is_no_text(self) -> None:
        assert texts(["a\ud800b"]).to_pylist() == ["a?b"]

    @given(st.lists(st.booleans()))
    def test_truths(self, values: list[bool]) -> None:
        assert to_arrow(np.array(values, bool)).to_pylist() == values
