"""The same job in every form gives the same answer; jobs that lack operation types give one."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steptax.app.errors import InputError
from steptax.app.whatif import JobSizes, analyse_file, analyse_ops, analyse_trace, read_trace
from steptax.app.whatif.analysis import Analysis, analyse, prepare
from steptax.app.whatif.published import published_result
from steptax.app.whatif.rows import rows_from_lake
from steptax.app.whatif.trace import make_trace

Shared = Callable[[str], Path]


def numbers(analysis: Analysis) -> dict[str, Any]:
    return published_result(analysis)


def lake_from_file(table: pa.Table) -> pa.Table:
    """The rows of a file as they lie in the lake: nanoseconds, nulls for -1, one row a line."""
    count = table.num_rows

    def ns(name: str) -> pa.Array:
        return pa.array(np.round(np.array(table[name].to_pylist()) * 1e9).astype(np.int64))

    def or_null(name: str) -> pa.Array:
        return pa.array([v if v >= 0 else None for v in table[name].to_pylist()], pa.int32())

    return pa.table(
        {
            "job_id": pa.array(["x"] * count),
            "step": table["step"],
            "rank": table["rank"].cast(pa.int32()),
            "op_id": pa.array(range(count), pa.int64()),
            "op_type": table["optype"].cast(pa.string()),
            "dp": table["dp_rank"].cast(pa.int32()),
            "pp": table["stage"].cast(pa.int32()),
            "micro_batch": or_null("mb_id"),
            "model_chunk": or_null("mc"),
            "global_chunk": or_null("gmc"),
            "seq": table["seq_id"].cast(pa.int64()),
            "start_ns": ns("start_ts"),
            "duration_ns": ns("duration"),
        }
    )


def test_the_lake_tells_the_same_as_the_file(shared: Shared) -> None:
    path = shared("ops/trace-ST.parquet")
    sizes = {"dp_size": 2, "dsp_size": 1}
    from_file = analyse_file(path, sizes=sizes, threshold=1.0).as_json()
    rows = lake_from_file(pq.read_table(path))
    from_lake = analyse_ops(rows, sizes=sizes, threshold=1.0).as_json()
    assert from_lake["blocking_slowdown"] == pytest.approx(from_file["blocking_slowdown"], rel=1e-7)
    for name in ("optype", "stage", "dp_rank"):
        for kind in ("blocking", "launch"):
            key = f"{kind}_decompose_by_{name}"
            assert from_lake[key] == pytest.approx(from_file[key], rel=1e-6), key


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_rows_does_not_matter(shared: Shared, seed: int) -> None:
    """Not in one digit: a lane is found by its coordinates, never by its position."""
    table = pq.read_table(shared("ops/trace-ST.parquet"))
    order = list(range(table.num_rows))
    random.Random(seed).shuffle(order)
    rows = lake_from_file(table)
    whole = analyse_ops(rows, threshold=1.0).as_json()
    mixed = analyse_ops(rows.take(pa.array(order)), threshold=1.0).as_json()
    assert mixed == whole


def test_plain_text_types_and_chunks_of_rows(shared: Shared, tmp_path: Path) -> None:
    path = shared("ops/trace-ST.parquet")
    table = pq.read_table(path)
    at = table.column_names.index("optype")
    plain = table.set_column(at, "optype", table["optype"].cast(pa.string()))
    pq.write_table(plain, tmp_path / "plain.parquet", row_group_size=1000)
    pq.write_table(table, tmp_path / "groups.parquet", row_group_size=777)
    whole = numbers(analyse(prepare(read_trace(path))))
    for name in ("plain", "groups"):
        assert numbers(analyse(prepare(read_trace(tmp_path / f"{name}.parquet")))) == whole


def test_nanoseconds_since_1970(made_up: SimpleNamespace) -> None:
    rows = made_up.rows_of(made_up.Job(spread=0.4))
    relative = analyse_ops(made_up.lake_table(rows))
    absolute = analyse_ops(made_up.lake_table(rows, epoch_ns=1_790_000_000_000_000_001))
    assert absolute.as_json() == relative.as_json()


def test_a_unit_can_be_said(made_up: SimpleNamespace, tmp_path: Path) -> None:
    rows = made_up.rows_of(made_up.Job(spread=0.4))
    seconds = made_up.trace_of(made_up.file_table(rows))
    millis = [(*r[:5], r[5] * 1e3, r[6] * 1e3, *r[7:]) for r in rows]
    pq.write_table(made_up.file_table(millis), tmp_path / "ms.parquet")
    read = read_trace(tmp_path / "ms.parquet", unit="ms")
    np.testing.assert_allclose(read.start_s, seconds.start_s, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(read.duration_s, seconds.duration_s, rtol=1e-12)
    with pytest.raises(InputError, match="unknown unit 'fortnight'"):
        read_trace(tmp_path / "ms.parquet", unit="fortnight")


def test_what_the_lake_may_lack_is_derived(made_up: SimpleNamespace) -> None:
    """Sequence numbers from the order of starts, chunks from the stage, names of types loosely."""
    job = made_up.Job(dps=3, stages=2, spread=0.4)
    rows = made_up.rows_of(job)
    table = made_up.lake_table(rows)
    whole = analyse_ops(table)
    bare = table.drop_columns(["seq", "model_chunk", "global_chunk"])
    loose = [k.upper().replace("-", "_") for k in table["op_type"].to_pylist()]
    at = bare.column_names.index("op_type")
    bare = bare.set_column(at, "op_type", pa.array(loose))
    got = analyse_ops(bare)
    assert got.S.value == pytest.approx(whole.S.value, rel=1e-12)
    assert "no sequence numbers recorded" in got.findings.warnings[0]


def test_without_places_each_rank_is_its_own_data_parallel_rank(made_up: SimpleNamespace) -> None:
    job = made_up.Job(dps=4, stages=1, spread=0.4)
    table = made_up.lake_table(made_up.rows_of(job))
    whole = analyse_ops(table)
    got = analyse_ops(table.drop_columns(["dp", "pp"]))
    assert got.S.value == whole.S.value
    assert "each rank counts as its own" in got.findings.warnings[0]


def test_places_that_are_known_for_some_rows_only(made_up: SimpleNamespace) -> None:
    table = made_up.lake_table(made_up.rows_of(made_up.Job()))
    at = table.column_names.index("pp")
    half = pa.array([None, *table["pp"].to_pylist()[1:]], pa.int32())
    with pytest.raises(InputError, match="no place in the parallel layout") as refused:
        analyse_ops(table.set_column(at, "pp", half))
    assert refused.value.where == "ops, pp, row 1"


def test_several_jobs_are_refused(made_up: SimpleNamespace) -> None:
    table = made_up.lake_table(made_up.rows_of(made_up.Job()))
    other = table.set_column(0, "job_id", pa.array(["other"] * table.num_rows))
    with pytest.raises(InputError, match="expected one job, found 2: made-up, other"):
        analyse_ops(pa.concat_tables([table, other]))


def test_empty_and_null_cells_are_refused(made_up: SimpleNamespace) -> None:
    table = made_up.lake_table(made_up.rows_of(made_up.Job()))
    with pytest.raises(InputError, match="no operations"):
        analyse_ops(table.slice(0, 0))
    for name, message in (("start_ns", "empty cell"), ("op_type", "1 operations have no type")):
        at = table.column_names.index(name)
        values = [None, *table[name].to_pylist()[1:]]
        with pytest.raises(InputError, match=message):
            analyse_ops(table.set_column(at, name, pa.array(values, table.schema.field(at).type)))
    with pytest.raises(InputError, match="no column op_type, duration_ns"):
        analyse_ops(table.drop_columns(["op_type", "duration_ns"]))
    text = table.set_column(
        table.column_names.index("start_ns"), "start_ns", pa.array(["x"] * table.num_rows)
    )
    with pytest.raises(InputError, match="expected numbers, found string"):
        analyse_ops(text)


def test_a_slice_of_a_table_is_read_where_it_begins(made_up: SimpleNamespace) -> None:
    table = made_up.lake_table(made_up.rows_of(made_up.Job(steps=2, spread=0.4)))
    first = sum(s == 10 for s in table["step"].to_pylist())
    got = make_trace(rows_from_lake(table.slice(first)))
    whole = make_trace(rows_from_lake(table))
    assert got.steps == (13,)
    np.testing.assert_array_equal(got.duration_s[:, 0], whole.duration_s[:, 1])
    assert got.op_global.tolist() == whole.op_global.tolist()


OPTIONAL = (
    "gc",
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
    "grads-reduce-scatter",
    "params-all-gather",
    "optimizer-clip-main-grad",
    "optimizer",
)


@pytest.mark.parametrize("gone", [*((g,) for g in OPTIONAL), OPTIONAL])
@pytest.mark.parametrize(("dps", "stages"), [(1, 1), (1, 3), (3, 1), (2, 3)])
def test_optional_types_may_be_absent(
    made_up: SimpleNamespace, gone: tuple[str, ...], dps: int, stages: int
) -> None:
    """The rest is still modelled: a played job is reproduced and its slow worker found."""
    job = made_up.Job(
        dps=dps, stages=stages, spread=0.2, slow={(dps - 1, stages - 1): 1.5}, without=gone
    )
    result = analyse_trace(made_up.trace(job))
    assert result.sim_error.value == pytest.approx(0, abs=1e-9)
    assert result.reliable
    assert result.S.value is not None
    if dps > 1:
        assert result.slowest_ranks == (job.rank(dps - 1, stages - 1),)
    said = " ".join(result.warnings())
    for name in set(gone) & {"optimizer", "optimizer-clip-main-grad"}:
        assert name in said
    if dps > 1 and set(gone) == set(OPTIONAL):
        assert "data-parallel ranks meet only at the step's end" in said


def test_virtual_stages_that_come_in_another_order_drop_the_step(shared: Shared) -> None:
    table = pq.read_table(shared("ops/D_vpp2_ovlp.parquet"))
    whole = table["gmc"].to_pylist()
    wrong = [
        4 - g if s == 15 and t == "forward-compute" and p == 0 else g
        for g, s, t, p in zip(
            whole,
            table["step"].to_pylist(),
            table["optype"].to_pylist(),
            table["stage"].to_pylist(),
            strict=True,
        )
    ]
    at = table.column_names.index("gmc")
    rows = lake_from_file(table.set_column(at, "gmc", pa.array(wrong, pa.int16())))
    trace = make_trace(rows_from_lake(rows), JobSizes(dsp=1))
    assert trace.steps == (5, 25)
    assert trace.findings.dropped[0].reason == "another virtual stage than in the first step"


def test_reading_imports_neither_pandas_nor_the_rest_of_the_house(shared: Shared) -> None:
    path = shared("ops/trace-ST.parquet")
    script = (
        "import sys; from pathlib import Path; from steptax.app.whatif import analyse_file; "
        f"analyse_file(Path({str(path)!r})).as_json(); "
        "bad = {'pandas', 'streamlit', 'plotly', 'duckdb', 'requests'} & sys.modules.keys(); "
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
