"""A lake seen by one team: nothing of another comes out of any table, query or view."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from steptax.app.errors import NotFoundError, UserError
from steptax.app.lake import Lake, ScopedLake
from steptax.app.lake.commits import Commit
from steptax.app.lake.compact import compact
from steptax.app.lake.scoped import BY_JOB, FILTERED, OPEN
from steptax.app.lake.segments import job_folder
from steptax.app.queries import QUERIES, DuckEngine
from steptax.app.schema import TABLES, Table
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.review.executive import executive_view
from steptax.app.views.workspace import open_workspace

HOUR_US = 3_600_000_000
BEGIN_US = 1_790_000_000_000_000
#: Whatever belongs to the other team carries its name, in every column of every table.
OURS, THEIRS = "alpha", "zebra"
SHARED_NODE = "both-node"
#: Kept back from a team as a whole.
KEPT_BACK = set(TABLES) - OPEN - BY_JOB - FILTERED


def row(spec: Table, team: str, number: int = 0, **known: Any) -> dict[str, Any]:
    """A row with a value in every column, and the team's name in every text."""
    out: dict[str, Any] = {}
    for field in spec.arrow:
        if field.name in ("source", "source_row", "ingested_at_us"):
            continue
        if pa.types.is_string(field.type):
            out[field.name] = f"{team}-{field.name}-{number}"
        elif pa.types.is_integer(field.type):
            out[field.name] = number
        elif pa.types.is_floating(field.type):
            out[field.name] = 0.5
        elif pa.types.is_boolean(field.type):
            out[field.name] = True
        else:
            out[field.name] = 1
    times = {"start_us": BEGIN_US, "end_us": BEGIN_US + HOUR_US, "submit_us": BEGIN_US}
    out |= {name: value for name, value in times.items() if name in out}
    out |= {"ts_us": BEGIN_US + 60_000_000 * number} if "ts_us" in out else {}
    out |= {"job_id": f"{team}-run"} if "job_id" in out else {}
    out |= {"team": team} if spec.name == "jobs" else {}
    out |= {"currency": "USD"} if "currency" in out else {}
    out |= {"period": "2026-11"} if spec.name == "budgets" else {}
    out |= {"scope": f"team:{team}"} if spec.name == "budgets" else {}
    if spec.name in ("jobs", "ranks", "device_samples", "port_samples"):
        out |= {"host": f"{team}-node"} if "host" in out else {}
        out |= {"gpu_uuid": f"GPU-{team}"} if "gpu_uuid" in out else {}
        out |= {"hosts": f"{team}-node", "state": "completed"} if spec.name == "jobs" else {}
    return out | known


def put(lake: Lake, name: str, *rows: dict[str, Any]) -> None:
    schema = pa.schema([TABLES[name].arrow.field(column) for column in rows[0]])
    lake.append(name, pa.Table.from_pylist(list(rows), schema=schema), source=rows_source(rows))


def rows_source(rows: tuple[dict[str, Any], ...]) -> str:
    return "test:" + ("zebra.csv" if THEIRS in repr(rows) else "alpha.csv")


@pytest.fixture
def lake(tmp_path: Path, stored: Lake) -> Lake:
    """A copy of the lake of both teams, to add to."""
    return Lake(shutil.copytree(stored.root, tmp_path / "lake"))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Both teams, rows of every table; open tables say nothing of a team."""
    made = Lake(tmp_path_factory.mktemp("teams") / "lake", create=True)
    for team in (OURS, THEIRS):
        for name, spec in TABLES.items():
            if name in OPEN and team == THEIRS:
                continue
            put(made, name, *(row(spec, team, number) for number in range(3)))
        folder = made.root / "live" / job_folder(f"{team}-run")
        folder.mkdir(parents=True)
        beat = {"rank": 0, "ts_us": BEGIN_US, "state": "running", "host": f"{team}-node"}
        (folder / "rank-000000.json").write_bytes(orjson.dumps(beat))
        detail = {"source": f"{team}.csv", "job_ids": [f"{team}-run"], "notes": []}
        made.commit(Commit(f"c-{team}", "ingest", BEGIN_US, detail=detail))
    both = {"source": "both.csv", "job_ids": [f"{OURS}-run", f"{THEIRS}-run"], "notes": [THEIRS]}
    made.commit(Commit("c-both", "ingest", BEGIN_US, detail=both))
    return made


@pytest.fixture(scope="module")
def mine(stored: Lake) -> DuckEngine:
    """Asks as the one team."""
    return open_workspace(stored.root, teams=[OURS]).engine


def said(found: pa.Table) -> str:
    return repr(found.to_pylist())


def test_what_nobody_has_settled_is_kept_back() -> None:
    assert not OPEN & BY_JOB
    assert not FILTERED & (OPEN | BY_JOB)
    assert {"charges", "charge_states", "rejects"} <= KEPT_BACK


@pytest.mark.parametrize("name", sorted(TABLES.keys() - OPEN))
def test_no_table_gives_a_row_of_another_team(stored: Lake, name: str) -> None:
    mine = ScopedLake(stored.root, [OURS])
    assert THEIRS in said(stored.read(name))
    found = mine.read(name)
    assert THEIRS not in said(found)
    assert (found.num_rows > 0) is (name not in KEPT_BACK)
    assert found.schema.equals(TABLES[name].arrow)
    if name in BY_JOB:
        assert mine.read(name, f"{THEIRS}-run").num_rows == 0
        assert mine.segments(name, f"{THEIRS}-run") == []
        assert mine.job_ids(name) == [f"{OURS}-run"]


@pytest.mark.parametrize("job", [f"{OURS}-run", f"{THEIRS}-run", None])
@pytest.mark.parametrize("name", QUERIES)
def test_no_query_gives_a_row_of_another_team(mine: DuckEngine, name: str, job: str | None) -> None:
    spec = QUERIES[name]
    known: dict[str, Any] = {
        "limit_rows": 1000,
        "step": 0,
        "rank": 0,
        "first_us": 0,
        "last_us": 2**62,
        "first_step": 0,
        "last_step": 100,
        "gpu_uuids": [f"GPU-{THEIRS}", f"GPU-{OURS}"],
        "first_job": "",
        "last_job": "~",
        "now_us": BEGIN_US + 24 * HOUR_US,
        "printed_name": f"{THEIRS}-name-0",
    }
    asked = {p: known.get(p, 1) for p in spec.parameters if p != "job_id"}
    assert THEIRS not in said(mine.run(name, job_id=job, **asked))


def test_a_reader_of_no_team_and_of_both(lake: Lake) -> None:
    nobody = ScopedLake(lake.root, [])
    assert nobody.read("jobs").num_rows == 0
    assert not [name for name in BY_JOB if nobody.job_ids(name)]
    both = ScopedLake(lake.root, [OURS, THEIRS])
    assert {*both.read("jobs")["job_id"].to_pylist()} == {f"{OURS}-run", f"{THEIRS}-run"}


def test_the_newest_record_says_whose_a_job_is(lake: Lake) -> None:
    put(lake, "jobs", {"job_id": f"{OURS}-run", "team": THEIRS})
    assert ScopedLake(lake.root, [OURS]).job_ids("steps") == []
    put(lake, "steps", row(TABLES["steps"], "orphan"))
    for team in (OURS, THEIRS):
        assert "orphan-run" not in ScopedLake(lake.root, [team]).job_ids("steps")


def test_signs_of_life_and_imports_are_of_the_own_jobs(lake: Lake) -> None:
    mine = ScopedLake(lake.root, [OURS])
    assert mine.live_job_ids() == [f"{OURS}-run"]
    assert mine.heartbeats(f"{OURS}-run")
    assert mine.heartbeats(f"{THEIRS}-run") == []
    assert [c.id for c in mine.ingests()] == [f"c-{OURS}"]
    assert {c.id for c in lake.ingests()} == {f"c-{OURS}", f"c-{THEIRS}", "c-both"}


def test_a_device_is_seen_while_its_job_had_it(lake: Lake) -> None:
    spec = TABLES["device_samples"]
    late = BEGIN_US + 2 * HOUR_US
    put(lake, "device_samples", row(spec, OURS, ts_us=late, power_w=999.0))
    seen = ScopedLake(lake.root, [OURS]).read("device_samples")
    assert seen.num_rows == 3
    assert late not in seen["ts_us"].to_pylist()
    engine = open_workspace(lake.root, teams=[OURS]).engine
    assert engine.run("device_sums_by_day", first_us=0, last_us=2**62).num_rows == 1


def test_a_node_that_others_share_is_seen_while_they_are_not_there(lake: Lake) -> None:
    # Neither record names a device: only the node, which the other job has in the second half.
    half = BEGIN_US + HOUR_US // 2
    for team, begin_us in ((OURS, BEGIN_US), (THEIRS, half)):
        job = f"{team}-shared"
        put(lake, "jobs", row(TABLES["jobs"], team, job_id=job, start_us=begin_us))
        place = row(TABLES["ranks"], team, job_id=job, host=SHARED_NODE, gpu_uuid=None)
        put(lake, "ranks", place)
    spec = TABLES["device_samples"]
    for k, ts_us in enumerate((BEGIN_US + 1, half + 1)):
        put(lake, "device_samples", row(spec, "x", k, host=SHARED_NODE, ts_us=ts_us))
    rows = ScopedLake(lake.root, [OURS]).read("device_samples").to_pylist()
    assert [r["ts_us"] for r in rows if r["host"] == SHARED_NODE] == [BEGIN_US + 1]


def test_a_view_of_a_team_writes_nothing_of_others(lake: Lake) -> None:
    mine = ScopedLake(lake.root, [OURS])
    spec = TABLES["budgets"]
    rows = pa.Table.from_pylist([{"scope": f"team:{THEIRS}", "period": "2026-11"}])
    with pytest.raises(PermissionError):
        mine.append("budgets", rows, source="test")
    with pytest.raises(PermissionError):
        mine.append("jobs", pa.table({"job_id": ["x"], "scope": ["x"]}), source="test")
    with pytest.raises(PermissionError):
        mine.commit(Commit("x", "ingest", 0))
    with pytest.raises(PermissionError):
        compact(mine, minimum=2)
    own = pa.Table.from_pylist([row(spec, OURS)], schema=pa.schema([*spec.arrow][:-3]))
    mine.append("budgets", own, source="test")
    assert spec.name in {s.table for s in lake.segments("budgets")}


def test_views_of_one_reader_are_not_kept_for_another(lake: Lake) -> None:
    # Caches of views are shared by all readers of the process: whoever asks second gets no more.
    whole, mine = open_workspace(lake.root), open_workspace(lake.root, teams=[OURS])
    theirs = open_workspace(lake.root, teams=[THEIRS])
    assert len({whole.key, mine.key, theirs.key}) == 3
    for first, second in ((whole, mine), (theirs, mine)):
        for made in (
            lambda ws: executive_view(ws, price=None, price_note=None),
            lambda ws: fleet_view(ws, price=None, price_note=None),
        ):
            assert THEIRS in repr(made(first))
            assert THEIRS not in repr(made(second))
    with pytest.raises(NotFoundError) as error:
        mine.job(f"{THEIRS}-run")
    assert f"newest: {OURS}-run" in str(error.value)


def test_a_bucket_is_refused_rather_than_shown_whole() -> None:
    with pytest.raises(UserError, match="some teams only"):
        ScopedLake("s3://bucket/lake", [OURS])


def test_no_view_keeps_anything_by_the_root_of_the_lake_alone() -> None:
    app = Path(inspect.getfile(Lake)).parents[1]
    for folder in (app / "views", app / "report", app.parent / "pages"):
        for path in folder.rglob("*.py"):
            for line in path.read_text(encoding="utf-8").splitlines():
                if "str(ws.root)" in line:
                    is_place = "where=" in line or "_labels(" in line
                    assert is_place, f"{path.name}: use ws.key: {line.strip()}"
