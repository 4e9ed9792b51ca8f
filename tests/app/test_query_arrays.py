"""Columns of an answer for numpy say what the table says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.errors import IntegrityError
from steptax.app.lake import Lake
from steptax.app.queries import engine as engines
from steptax.app.queries.arrays import arrays_of, gathered, numbers_of
from steptax.app.queries.engine import DuckEngine
from steptax.benchmarks.product.scale_data import JOB, segments

INTS = st.lists(st.one_of(st.none(), st.integers(0, 2**50)), max_size=12)


@given(values=INTS, cuts=st.lists(st.integers(0, 12), max_size=3), counted=st.integers(0, 12))
def test_columns_agree_with_the_table(
    values: list[int | None], cuts: Sequence[int], counted: int
) -> None:
    edges = sorted({0, len(values), *(min(cut, len(values)) for cut in cuts)})
    parts = [values[a:b] for a, b in pairwise(edges)]
    schema = pa.schema({"a": pa.int64(), "b": pa.float64(), "c": pa.int32()})
    batches = [
        pa.record_batch(
            [
                pa.array(part, pa.int64()),
                pa.array([None if v is None else v / 3 for v in part], pa.float64()),
                pa.array(range(len(part)), pa.int32()),
            ],
            schema=schema,
        )
        for part in parts
    ]
    # As many rows as were counted, or more where some came in since.
    found = gathered(schema, iter(batches), counted)
    if values and all(value is None for value in values):
        assert list(found) == ["c"]
        return
    want = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    np.testing.assert_array_equal(found["a"], want)
    np.testing.assert_array_equal(found["b"], want / 3)
    assert found["a"].dtype == (np.float64 if None in values else np.int64)
    assert found["c"].dtype == np.int32
    table = pa.Table.from_batches(batches, schema)
    np.testing.assert_array_equal(arrays_of(table)["a"], want)
    np.testing.assert_array_equal(numbers_of(table["a"]).astype(np.float64), want)


def test_an_engine_gives_the_rows_of_the_query(tmp_path: Path) -> None:
    lake = Lake(tmp_path, create=True)
    for part in segments(16, 300):
        lake.append("steps", part, source="test")
    engine = DuckEngine(lake)
    table = engine.run("step_cells", job_id=JOB, first_step=100, last_step=270)
    cells = engine.arrays("step_cells", job_id=JOB, first_step=100, last_step=270)
    assert {n for n in table.column_names if table[n].null_count < len(table)} == {*cells}
    order = np.lexsort((cells["rank"], cells["step"]))
    table = table.sort_by([("step", "ascending"), ("rank", "ascending")])
    for name, values in cells.items():
        assert values[order].tolist() == table[name].to_pylist()
    assert len(engine.arrays("step_cells", job_id=JOB, first_step=900, last_step=901)["step"]) == 0


def test_numbers_beyond_those_of_a_float_are_rounded_as_all_are() -> None:
    """As where none is null: a wrong unit in one row stops no page."""
    column = pa.array([2**60 + 1, None], pa.int64())
    found = arrays_of(pa.table({"a": column}))["a"]
    assert found[0] == float(2**60)
    assert np.isnan(found[1])


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Out of Memory Error: failed to allocate", duckdb.Error),
        ("IO Error: Cannot open file", IntegrityError),
    ],
)
def test_what_ends_a_stream_is_not_taken_for_a_file_that_cannot_be_read(
    said: str, kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow raises an OSError for whatever the engine says in the middle of its rows."""
    lake = Lake(tmp_path, create=True)
    for part in segments(2, 4):
        lake.append("steps", part, source="test")

    def ended(*_: object) -> None:
        raise OSError(said)

    monkeypatch.setattr(engines, "gathered", ended)
    with pytest.raises(kind, match=said.partition(":")[2].strip()):
        DuckEngine(lake).arrays("step_cells", job_id=JOB, first_step=0, last_step=9)
    assert lake.set_aside() == []
