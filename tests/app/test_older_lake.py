"""A lake that was written before a table got another column still answers."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from steptax.app.lake import Lake
from steptax.app.views.workspace import open_workspace
from tests.app.fleet_lake import S, job, rows


@pytest.mark.parametrize("old", [(0,), (1,), (0, 1)])
def test_columns_that_a_segment_lacks_are_unknown(tmp_path: Path, old: tuple[int, ...]) -> None:
    root = tmp_path / "lake"
    lake = Lake(root, create=True)
    for k, name in enumerate(("a", "b")):
        record = job(name, 0, 60 * S, state_detail=f"WORD_{name}")
        lake.append("jobs", rows([record]), source=f"test {k}")
    segments = sorted((root / "tables" / "jobs").rglob("*.parquet"))
    assert len(segments) == 2
    for k in old:
        whole = pq.read_table(segments[k])
        pq.write_table(whole.drop_columns(["state_detail"]), segments[k])
    found = {row["job_id"]: row.get("state_detail") for row in open_workspace(root).jobs()}
    assert len(found) == 2
    assert sum(word is None for word in found.values()) == len(old)
