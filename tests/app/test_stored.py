"""What is stored beside a lake equals what would be worked out now, and goes by each job's data."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.lake import Lake
from steptax.app.views import stored
from steptax.app.views.fleet import jobs as fleet_jobs
from steptax.app.views.fleet.jobs import job_bills
from steptax.app.views.fleet.record_bills import JobBill
from steptax.app.views.job import jobs, step_facts
from steptax.app.views.job.step_facts import facts_of
from steptax.app.views.stored_codec import Codec, references
from steptax.app.views.workspace import Workspace, open_workspace
from tests.app.fleet_lake import HOUR, S, event, job, lake_of, on, rows, steps, us

T0 = us(2026, 11, 1)
JOBS = 10
CODEC = Codec(
    *(one for one in (*fleet_jobs._BILL, *step_facts._FACTS) if one not in (Measure, Level)),
    fleet_jobs.Denominator, fleet_jobs.State, Measure, Ratio, Level,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    """Make this process as one that has just started."""
    for cache in (fleet_jobs._cache, step_facts._cache, jobs._cache):
        cache.clear()
    fleet_jobs._unchanged._found.clear()
    fleet_jobs._of_records.clear()


def lake(root: Path) -> Workspace:
    told = [f"j{k}" for k in range(JOBS)]
    start = {name: T0 + k * 2 * HOUR for k, name in enumerate(told)}
    return lake_of(
        root,
        jobs=[job(name, start[name], start[name] + HOUR) for name in told]
        + [job("runs", T0, None, state="running")],
        ranks=[row for name in told for row in on(name, "n1")],
        events=[
            row
            for name in (*told, "runs")
            for row in (
                event(name, "process_start", start.get(name, T0) + 30 * S),
                event(name, "checkpoint_save", start.get(name, T0) + 20 * 60 * S),
            )
        ],
        steps=[
            row for name in told for row in steps(name, start[name] + 60 * S, 30, slow_us=9 * S)
        ],
    )


def looked_at(ws: Workspace) -> tuple[dict[str, bytes], dict[str, bytes]]:
    bills = {one.job_id: CODEC.to_text(one) for one in job_bills(ws, ws.jobs())}
    return bills, {name: CODEC.to_text(f) for name, f in facts_of(ws, ws.jobs()).items()}


def test_a_new_process_reads_what_it_would_work_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = lake(tmp_path)
    made = looked_at(ws)
    forget()

    def fail(*_: object) -> None:
        raise AssertionError("it was worked out once more")

    with monkeypatch.context() as patched:
        patched.setattr(step_facts, "analyse_jobs", fail)
        only = open_workspace(tmp_path)
        facts = facts_of(only, only.jobs())
    assert {name: CODEC.to_text(one) for name, one in facts.items()} == made[1]
    forget()
    assert looked_at(open_workspace(tmp_path)) == made
    # The saves and the bill of one job, by hand.
    bill = next(one for one in job_bills(ws, ws.jobs()) if one.job_id == "j3")
    assert bill.saves_us == (T0 + 6 * HOUR + 20 * 60 * S,)
    assert bill.bill is not None
    assert bill.bill.total_gpu_us == 4 * HOUR


def test_an_append_makes_the_value_of_that_job_alone_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = looked_at(lake(tmp_path))
    late = T0 + 6 * HOUR + 50 * 60 * S
    Lake(tmp_path).append("events", rows([event("j3", "failure", late)]), source="test")
    Lake(tmp_path).append("steps", rows(steps("j4", T0 + 8 * HOUR + 55 * 60 * S, 2, first=30)),
                          source="test")  # fmt: skip
    made: dict[str, list[str]] = {"bills": [], "steps": []}
    make, analyse = fleet_jobs._make, step_facts.analyse_jobs

    def bills(ws: Workspace, asked: list[dict[str, object]], *more: object) -> object:
        made["bills"] += [str(one["job_id"]) for one in asked]
        return make(ws, asked, *more)  # type: ignore[arg-type]

    def facts(ws: Workspace, asked: list[dict[str, object]]) -> object:
        made["steps"] += [str(one["job_id"]) for one in asked]
        return analyse(ws, asked)

    monkeypatch.setattr(fleet_jobs, "_make", bills)
    monkeypatch.setattr(step_facts, "analyse_jobs", facts)
    forget()
    after = looked_at(open_workspace(tmp_path))
    assert sorted(made["bills"]) == ["j3", "j4", "runs"]
    assert made["steps"] == ["j4"]
    assert {k for k in before[0] if before[0][k] != after[0][k]} == {"j3", "j4"}
    assert {k for k in before[1] if before[1][k] != after[1][k]} == {"j4"}


@pytest.mark.parametrize("state", ["running", None])
def test_a_large_job_is_stored_whatever_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    """One of thousands of ranks takes seconds; one that runs grows, and is known anew then."""
    record = job("large", T0, None, state=state)
    ws = lake_of(tmp_path, jobs=[record], steps=steps("large", T0 + 60 * S, 30, slow_us=9 * S))
    looked_at(ws)
    assert not (tmp_path / "derived").exists()
    forget()
    monkeypatch.setattr(stored, "LARGE_JOB_ROWS", 100)
    made = looked_at(ws)
    forget()

    def fail(*_: object) -> None:
        raise AssertionError("it was worked out once more")

    with monkeypatch.context() as patched:
        patched.setattr(step_facts, "analyse_jobs", fail)
        patched.setattr(fleet_jobs, "_make", fail)
        assert looked_at(open_workspace(tmp_path)) == made
    ws.lake.append("steps", rows(steps("large", T0 + 31 * 60 * S, 5, first=30)), source="test")
    forget()
    grown = looked_at(open_workspace(tmp_path))
    assert grown[0] != made[0]
    assert grown[1] != made[1]
    shutil.rmtree(tmp_path / "derived")
    forget()
    assert looked_at(open_workspace(tmp_path)) == grown


def test_another_program_a_damaged_file_and_a_disk_that_is_full_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = lake(tmp_path)
    made = looked_at(ws)
    files = sorted((tmp_path / "derived").rglob("*.parquet"))
    assert len(files) == 2
    # Values of another program are not read, whatever they are.
    for path in files:
        told = pq.read_table(path)
        wrong = pa.array(['["of", "Path", "/"]'] * told.num_rows)
        pq.write_table(told.set_column(2, "value", wrong), path)
    forget()
    assert looked_at(open_workspace(tmp_path)) == made
    for path in (tmp_path / "derived").rglob("*.parquet"):
        path.write_bytes(b"PAR1 no more")
    forget()
    assert looked_at(open_workspace(tmp_path)) == made

    def full(*_: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(stored, "write_rollup", full)
    forget()
    assert looked_at(open_workspace(tmp_path)) == made


def test_many_files_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ws = lake_of(tmp_path, jobs=[job("a", T0, T0 + HOUR)])
    kept: stored.Stored[JobBill] = stored.Stored("tried", CODEC)
    monkeypatch.setattr(stored, "MOST_FILES", 3)
    for k in range(4):
        kept.keep(
            ws, {f"j{k}": ("key", JobBill(f"j{k}", reason="none")), "last": (str(k), JobBill("x"))}
        )
    assert len(list((tmp_path / "derived" / "tried").iterdir())) == 1
    keys = {f"j{k}": "key" for k in range(4)} | {"last": "3", "gone": "key"}
    assert set(kept.find(ws, keys)) == {"j0", "j1", "j2", "j3", "last"}
    assert kept.find(ws, {"last": "2"}) == {}
    teams = open_workspace(tmp_path, teams=["ml"])
    kept.keep(teams, {"secret": ("key", JobBill("secret"))})
    assert kept.find(ws, {"secret": "key"}) == {}


PLAIN = (
    st.none()
    | st.integers()
    | st.text(max_size=3)
    | st.fractions()
    | st.floats(allow_nan=False)
    | st.decimals(allow_nan=False)
)


@given(
    PLAIN
    | st.lists(PLAIN, max_size=3)
    | st.lists(PLAIN, max_size=3).map(tuple)
    | st.dictionaries(st.text(max_size=2), PLAIN, max_size=2)
    | st.frozensets(st.integers(), max_size=3)
)
def test_plain_values_come_back_as_they_were(value: object) -> None:
    back = CODEC.of_text(CODEC.to_text(value))
    assert back == value
    assert type(back) is type(value)


@given(st.lists(st.lists(PLAIN, max_size=3).map(tuple), min_size=1, max_size=4), st.integers(1, 4))
def test_what_values_share_is_written_once_and_comes_back(
    parts: list[tuple[object, ...]], count: int
) -> None:
    values = [
        JobBill(f"j{k}", reason="none", stops=(("failure", repr(part)), ("evict", None)))
        for k, part in enumerate(parts * count)
    ]
    shares = [Ratio(0.5, level=Level.LOG, inputs=("same",) * len(part)) for part in parts * count]
    told: list[object] = [[one, {"of": [share]}] for one, share in zip(values, shares, strict=True)]
    texts, shared = CODEC.to_texts([*told, Path("/")])
    assert texts[-1] is None
    reader = CODEC.reader(shared)
    assert [reader.of_text(text or "") for text in texts[:-1]] == told
    known = [text or "" for text in texts]
    assert references(known, shared) == shared
    if count > 1:
        assert shared
    with pytest.raises(KeyError):
        CODEC.reader({}).of_text('["as","0123456789abcdef"]')


def test_nothing_but_the_named_classes_is_written_or_made() -> None:
    with pytest.raises(TypeError, match="PosixPath cannot be stored"):
        CODEC.to_text(Path("/"))
    with pytest.raises(KeyError):
        CODEC.of_text('["of", "Path", "/"]')
    share = Ratio(0.5, level=Level.LOG)
    assert CODEC.of_text(CODEC.to_text(share)) == share
    with pytest.raises(Exception, match="a share must lie in"):
        CODEC.of_text(CODEC.to_text(share).replace(b"0.5", b"1.5"))
    assert replace(share, value=0.25) == CODEC.of_text(CODEC.to_text(replace(share, value=0.25)))


def test_the_program_is_every_module_that_works_values_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a folder within too: else what an older program made would be read."""
    module = tmp_path / "compute" / "straggler" / "analysis.py"
    module.parent.mkdir(parents=True)
    monkeypatch.setattr(stored, "_PROGRAM", (tmp_path / "compute",))
    found = []
    for text in ("ONE = 1", "ONE = 2"):
        module.write_text(text, encoding="utf-8")
        found.append(stored.program.__wrapped__())
    assert found[0] != found[1]
