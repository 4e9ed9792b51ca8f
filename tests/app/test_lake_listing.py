"""Folders that are listed anew only where they may have changed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Thread

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.lake import Lake, one_look
from steptax.app.lake.listing import SETTLED_NS, Listing
from steptax.app.queries.python_rows import python_rows
from tests.app.fleet_lake import HOUR, job, lake_of, rows, us

T0 = us(2026, 11, 1)


def settle(folder: Path) -> None:
    """Make a folder look as if nobody had touched it for a while."""
    then = time.time_ns() - 2 * SETTLED_NS
    os.utime(folder, ns=(then, then))


def test_a_folder_that_was_left_alone_is_listed_once(tmp_path: Path) -> None:
    listing, own = Listing(), tmp_path / "own"
    assert listing.entries(str(own)) == ()
    own.mkdir()
    (own / "b").touch()
    assert listing.entries(str(own)) == ("b",)
    # Just written to: a change within the same grain of time would not be seen by its time.
    changed = own.stat().st_mtime_ns
    (own / "a").touch()
    os.utime(own, ns=(changed, changed))
    assert listing.entries(str(own)) == ("a", "b")
    settle(own)
    first = listing.entries(str(own))
    assert listing.entries(str(own)) is first
    (own / "c").touch()
    assert listing.entries(str(own)) == ("a", "b", "c")
    (own / "a").unlink()
    assert listing.entries(str(own)) == ("b", "c")


def test_a_reader_sees_what_a_writer_adds_also_after_a_while(tmp_path: Path) -> None:
    ws = lake_of(tmp_path, jobs=[job("a", T0, T0 + HOUR)])
    for folder in [tmp_path / "tables", *(tmp_path / "tables").rglob("*/")]:
        settle(folder)
    before = ws.lake.version("jobs")
    assert ws.lake.version("jobs") == before
    assert [row["job_id"] for row in ws.jobs()] == ["a"]
    writer = Lake(tmp_path)
    ranks = [{"job_id": "b", "rank": 0, "host": "n"}]
    writer.append("jobs", rows([job("b", T0 + HOUR, T0 + 2 * HOUR)]), source="test")
    writer.append("ranks", rows(ranks), source="test")
    assert ws.lake.version("jobs") != before
    assert [row["job_id"] for row in ws.jobs()] == ["b", "a"]
    assert ws.lake.job_ids("ranks") == ["b"]
    assert len(ws.lake.segments("ranks", "b")) == 1


COLUMNS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.text(max_size=3)),
        st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        st.one_of(st.none(), st.floats(allow_nan=False)),
        st.one_of(st.none(), st.booleans()),
    )
)


@given(COLUMNS, st.integers(0, 5))
def test_rows_are_those_that_arrow_gives(values: list[tuple[object, ...]], split: int) -> None:
    types = (pa.string(), pa.int64(), pa.float64(), pa.bool_())
    columns = [
        pa.chunked_array(
            [
                pa.array([v[k] for v in values[:split]], t),
                pa.array([v[k] for v in values[split:]], t),
            ]
        )
        for k, t in enumerate(types)
    ]
    table = pa.table([*columns, pa.nulls(len(values), pa.string())], names=[*"abcde"])
    assert python_rows(table) == table.to_pylist()


def test_one_look_shows_a_table_as_it_was_when_it_was_asked_for_first(tmp_path: Path) -> None:
    ws = lake_of(tmp_path, jobs=[job("a", T0, T0 + HOUR)])
    other = Lake(tmp_path)
    with one_look():
        version = ws.lake.version("jobs")
        with one_look():  # a part of the same
            other.append("jobs", rows([job("b", T0, T0 + HOUR)]), source="test")
        # The reader's own thread has written: it looks again.
        assert ws.lake.version("jobs") != version
        version = ws.lake.version("jobs")
        writer = Thread(
            target=Lake(tmp_path).append,
            args=("jobs", rows([job("c", T0, T0 + HOUR)])),
            kwargs={"source": "test"},
        )
        writer.start()
        writer.join()
        assert ws.lake.version("jobs") == version
        assert len(ws.lake.segments("jobs")) == 2
    assert ws.lake.version("jobs") != version
    assert len(ws.lake.segments("jobs")) == 3
