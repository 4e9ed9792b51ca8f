"""A server that answers for weeks: what questions leave behind goes with their database."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from steptax.app.lake import Lake
from steptax.app.queries import DuckEngine, database

#: Bytes in use after joins in one database, and in as many databases as they are due.
_JOINS = """
import ctypes
from steptax.app.queries import database
database.QUESTIONS = {questions}
class Info(ctypes.Structure):
    _fields_ = [(f"f{{i}}", ctypes.c_size_t) for i in range(10)]
library = ctypes.CDLL("libc.so.6")
library.mallinfo2.restype = Info
own = database.Database(threads=1)
def ask(times):
    for _ in range(times):
        with own.cursor() as cursor:
            cursor.sql("SELECT * FROM range(100) a(i) JOIN range(10) b(j) ON i = j").fetchall()
    return library.mallinfo2().f7
begin = ask(101)
print(ask(400) - begin)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is asked for")
def test_what_joins_leave_behind_is_given_back() -> None:
    grown = []
    for questions in (100, 10**9):
        done = subprocess.run(
            [sys.executable, "-c", _JOINS.format(questions=questions)],
            capture_output=True,
            text=True,
            check=True,
        )
        grown.append(int(done.stdout))
    assert grown[0] < max(grown[1] / 4, 200_000)


def test_readers_notice_nothing_of_a_new_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "QUESTIONS", 5)
    lake = Lake(tmp_path / "lake", create=True)
    rows = {
        "job_id": ["a"] * 30,
        "attempt": pa.array([0] * 30, pa.int32()),
        "step": [*range(10)] * 3,
        "rank": pa.array([rank for rank in range(3) for _ in range(10)], pa.int32()),
        "duration_us": [1_000] * 30,
    }
    lake.append("steps", pa.table(rows), source="made")
    engine = DuckEngine(lake)
    seen = {id(engine._database._connection)}

    def ask(_: int) -> int:
        found = engine.run("step_cells", job_id="a", first_step=0, last_step=9).num_rows
        seen.add(id(engine._database._connection))
        return int(found)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ask, range(40))) == {30}
    assert len(seen) > 1
    with engine._database.cursor() as cursor:
        held = cursor.sql("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()
        assert held == [(0,)]  # no file that was read is kept by its name
