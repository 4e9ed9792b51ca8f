"""Segments that are gone: doctor names them, and their input brings the rows back, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.doctor import examine
from steptax.app.errors import IntegrityError
from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.app.lake.commits import RETAIN
from steptax.app.lake.compact import compact
from steptax.app.lake.ingest import ingest
from steptax.app.lake.quarantine import FOLDER
from steptax.app.lake.retain import retain
from steptax.app.lake.standing import lost
from steptax.app.queries import DuckEngine
from steptax.app.schema import Batch
from steptax.app.settings import Settings
from steptax.app.views.health import health_view
from steptax.app.views.workspace import open_workspace
from steptax.connectors.base import Options
from tests.app.test_bill_deliveries import line, total, write
from tests.app.test_lake import steps

Run = Callable[..., Any]
FILES, STEPS, RANKS = 4, 5, 2
JOB = "one"


def put(folder: Path, number: int) -> Path:
    """A file of ``STEPS`` steps of ``RANKS`` ranks, the ``number``-th of its job."""
    path = folder / f"f{number}.csv"
    first = number * STEPS
    rows = [
        f"{s},{r},{100 + 5 * r + s}\n" for s in range(first, first + STEPS) for r in range(RANKS)
    ]
    path.write_text("step,rank,duration_us\n" + "".join(rows))
    return path


def whole(lake: Lake, files: int = FILES) -> bool:
    """Whether every row of the first ``files`` is there, once, with its value, and no other."""
    rows = lake.read("steps", JOB).to_pylist()
    found = sorted((row["step"], row["rank"], row["duration_us"]) for row in rows)
    wanted = [(s, r, 100 + 5 * r + s) for s in range(files * STEPS) for r in range(RANKS)]
    return found == wanted


@pytest.fixture
def stored(tmp_path: Path) -> Lake:
    """A job in ``FILES`` inputs."""
    lake = Lake(tmp_path / "lake", create=True)
    for number in range(FILES):
        ingest_file(lake, "steps", put(tmp_path, number), Options(job_id=JOB))
    assert whole(lake)
    return lake


def merged(lake: Lake) -> Path:
    """The segment of the job once all of it was merged and what was merged is gone."""
    compact(lake, minimum=2, grace_s=0)
    compact(lake, minimum=2, grace_s=0)
    (path,) = lake.folder("steps", JOB).iterdir()
    return path


def findings(lake: Lake, state: str) -> list[tuple[str, str]]:
    """What doctor says of the lake."""
    found = examine(Settings(lake=lake.root))
    return [(f.text, f.hint or "") for f in found if f.check == "lake" and f.state == state]


def commands(hint: str) -> list[list[str]]:
    """The commands that a hint names, without their program."""
    return [
        [word.strip(";") for word in said.split()]
        for said in hint.split("steptax ")[1:]
        if said.startswith("ingest")
    ]


def test_a_segment_that_is_gone_is_named_and_its_input_brings_it_back(
    stored: Lake, steptax: Run
) -> None:
    place = ("--lake", stored.root)
    gone = next(stored.folder("steps", JOB).glob("part-*"))
    assert steptax("doctor", *place)["failed"] == 0
    gone.unlink()
    data = steptax("doctor", *place, exits=3)
    (one,) = [f for f in data["findings"] if f["state"] == "fail"]
    assert gone.name in one["text"]
    assert "10 rows are missing" in one["text"]
    # It is said once, and by the health page too.
    assert not any(gone.name in f["text"] for f in data["findings"] if f["check"] == "sources")
    assert gone.name in health_view(open_workspace(stored.root)).warnings[0]
    (command,) = commands(one["hint"])
    again = steptax(*command, *place)
    assert again["tables"]["steps"]["accepted"] == STEPS * RANKS
    assert whole(stored)
    assert steptax("doctor", *place)["failed"] == 0
    assert health_view(open_workspace(stored.root)).warnings == ()
    again = steptax(*command, *place)
    assert again["ingests"][0]["already"]
    assert whole(stored)


def test_a_job_whose_steps_are_gone_says_so(stored: Lake, steptax: Run) -> None:
    for path in stored.folder("steps", JOB).iterdir():
        path.unlink()
    error = steptax("job", JOB, "--lake", stored.root, fails=2)
    assert "40 rows are missing" in error["message"]
    assert "part-" in error["message"]
    assert len(commands(error["hint"])) == FILES


@pytest.mark.parametrize("how", ["gone", "damaged", "damaged and looked at", "record"])
def test_what_was_merged_comes_back_from_its_inputs(how: str, stored: Lake, steptax: Run) -> None:
    """As docs/operation.md says it: of a merged segment, and of the record of a merge."""
    place = ("--lake", stored.root)
    path = merged(stored)
    if how == "gone":
        path.unlink()
    elif how == "record":
        for record in (stored.root / "commits").iterdir():
            if b'"compact"' in record.read_bytes():
                record.write_bytes(b"")
    else:
        path.write_bytes(path.read_bytes()[:-20])
        if how == "damaged and looked at":
            assert stored.read("steps", JOB).num_rows == 0
        else:  # the first question sets it aside
            steptax("jobs", *place)
            steptax("job", JOB, *place, fails=2)
    assert not whole(Lake(stored.root))
    hints = [hint for _, hint in findings(stored, "fail") if f"f{FILES - 1}.csv" in hint]
    told = max((commands(hint) for hint in hints), key=len)
    assert [Path(words[2]).name for words in told] == [f"f{k}.csv" for k in range(FILES)]
    for words in told:
        assert not steptax(*words, *place)["ingests"][0]["already"]
    assert whole(Lake(stored.root))
    for words in told:
        assert steptax(*words, *place)["ingests"][0]["already"]
    # What is left is the damaged file itself, which can be removed now.
    failing = findings(stored, "fail")
    assert all("commits/" in text for text, _ in failing)
    assert bool(failing) is (how == "record")
    if how.startswith("damaged"):
        ((text, hint),) = [w for w in findings(stored, "warn") if "stored again" in w[0]]
        assert path.name in text
        (stored.root / FOLDER / stored.relative(path)).unlink()
        assert str(stored.root / FOLDER) in hint
    if how == "record":
        for record in (stored.root / "commits").iterdir():
            if not record.stat().st_size:
                record.unlink()
    assert findings(stored, "fail") == []
    assert not any("stored again" in text for text, _ in findings(stored, "warn"))
    compact(stored, minimum=2, grace_s=0)
    assert whole(Lake(stored.root))


def test_what_is_put_back_after_it_was_ingested_again_is_found(
    stored: Lake, tmp_path: Path
) -> None:
    path = merged(stored)
    kept = path.rename(tmp_path / "backup")
    ingest_file(stored, "steps", tmp_path / "f1.csv", Options(job_id=JOB))
    assert stored.read("steps", JOB).num_rows == STEPS * RANKS
    kept.rename(path)
    assert stored.read("steps", JOB).num_rows == (FILES + 1) * STEPS * RANKS
    ((text, hint),) = findings(stored, "fail")
    assert "steps:f1.csv" in text
    assert "there twice" in text
    Path(hint.split()[1].strip(",")).unlink()
    ingest_file(stored, "steps", tmp_path / "f1.csv", Options(job_id=JOB))
    assert whole(stored)
    assert findings(stored, "fail") == []


def test_what_a_lost_merge_replaced_is_kept_and_counts_again(stored: Lake) -> None:
    compact(stored, minimum=2)
    (new,) = {s.path for s in stored.segments("steps", JOB)}
    new.unlink()
    compact(stored, minimum=2, grace_s=0)
    assert len(list(stored.folder("steps", JOB).iterdir())) == FILES
    ((_, hint),) = findings(stored, "fail")
    assert "still there" in hint
    Path(hint.split()[1].strip(":")).unlink()
    assert whole(stored)
    assert findings(stored, "fail") == []


def test_rows_of_recorders_are_in_a_backup_only(stored: Lake) -> None:
    stored.append("steps", steps("live", 0, 2), source="recorder")
    stored.append("steps", steps("live", 2, 2), source="recorder")
    compact(stored, minimum=2, grace_s=0)
    (path,) = {s.path for s in stored.segments("steps", "live")}
    compact(stored, minimum=9, grace_s=0)
    path.unlink()
    ((text, hint),) = findings(stored, "fail")
    assert "16 rows are missing" in text
    assert "backup alone" in hint
    assert not commands(hint)


def test_what_is_known_since_stays_the_newer(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)

    def told(name: str, state: str) -> None:
        row = {"job_id": ["j"], "state": [state], "team": ["t" if name == "aa" else None]}
        batch = Batch("jobs", pa.table({k: pa.array(v, pa.string()) for k, v in row.items()}))
        ingest(lake, [batch], ingest_id=name, source=name)

    told("aa", "running")
    told("bb", "completed")
    first = next(s.path for s in lake.segments("jobs") if "-aa-" in s.path.name)
    first.unlink()
    assert lake.read("jobs").to_pylist()[0]["team"] is None
    told("aa", "running")
    (job,) = lake.read("jobs").to_pylist()
    assert (job["state"], job["team"]) == ("completed", "t")


def test_rejected_rows_are_listed_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    path = tmp_path / "a.csv"
    path.write_text("step,rank,duration_us\n0,0,5\n0,x,5\n1,0,6\n")
    ingest_file(lake, "steps", path, Options(job_id=JOB))
    for name in ("steps", "rejects"):
        for segment in lake.segments(name):
            segment.path.unlink()
        assert ingest_file(lake, "steps", path, Options(job_id=JOB)).rejected == {"steps": 1}
        assert lake.row_counts()["rejects"] == 1
        assert lake.row_counts()["steps"] == 2
    assert sum(s.rejected for s in health_view(open_workspace(lake.root)).sources) == 1
    assert all(one.is_mended for one in lost(lake))


def test_a_bill_that_is_put_back_counts_as_it_did(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    old = write(tmp_path / "old.csv", [line(hour, "10") for hour in range(6)])
    new = write(tmp_path / "new.csv", [line(hour, "7") for hour in range(8)])
    for path in (old, new):
        ingest_file(lake, "focus", path, Options())
    assert total(tmp_path) == 56
    for path, of in ((old, "old"), (new, "new")):
        (segment,) = [
            s.path
            for s in lake.segments("charges")
            if lake.read("charges").num_rows and of in _source(s.path)
        ]
        segment.unlink()
        result = ingest_file(lake, "focus", path, Options())
        assert result.accepted["charges"] > 0
        assert total(tmp_path) == 56


def _source(path: Path) -> str:
    return str(pq.read_table(path, partitioning=None)["source"][0].as_py())


def test_what_retention_dropped_does_not_come_back(stored: Lake, tmp_path: Path) -> None:
    retain(stored, 2**62, grace_s=0)
    assert stored.row_counts()["steps"] == 0
    assert ingest_file(stored, "steps", tmp_path / "f0.csv", Options(job_id=JOB)).already
    assert findings(stored, "fail") == []
    part = next((stored.root / "kept").rglob("*.parquet"))
    # A record that cannot be read may be the one that names it.
    for path in (stored.root / "commits").iterdir():
        if f'"{RETAIN}"'.encode() in path.read_bytes():
            record, body = path, path.read_bytes()
            path.write_bytes(b"")
    assert retain(Lake(stored.root), 2**62, grace_s=0).dropped == ()
    assert part.exists()
    record.write_bytes(body)
    part.unlink()
    ((text, hint),) = findings(stored, "fail")
    assert part.name in text
    assert "nothing else has them" in hint


def test_a_file_that_goes_while_it_is_read_is_looked_for_again(
    stored: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listed, then merged and removed before it is opened: as a slow question over a long grace."""
    engine = DuckEngine(stored)
    real = Lake.segments
    listed = real(stored, "steps", JOB)
    compact(stored, minimum=2, grace_s=0)
    stale = [listed]

    def segments(lake: Lake, *args: Any, **more: Any) -> Any:
        return stale.pop() if stale and args[0] == "steps" else real(lake, *args, **more)

    monkeypatch.setattr(Lake, "segments", segments)
    rows = engine.run("step_rows", job_id=JOB, first_step=0, last_step=99)
    assert rows.num_rows == FILES * STEPS * RANKS
    assert not stale


def test_a_file_that_cannot_be_opened_is_named(stored: Lake) -> None:
    path = stored.segments("steps", JOB)[0].path
    path.unlink()
    path.symlink_to("nowhere")
    with pytest.raises(IntegrityError, match="cannot be read") as told:
        DuckEngine(stored).run("step_rows", job_id=JOB, first_step=0, last_step=99)
    assert path.name in told.value.message


OPS = st.lists(
    st.tuples(
        st.sampled_from(["ingest", "compact", "sweep", "lose", "damage", "record"]),
        st.integers(0, 7),
    ),
    max_size=6,
)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(work=OPS)
def test_whatever_is_lost_the_inputs_bring_it_back_once(
    work: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Inputs that overlap, merges and losses in any order; in the end every input once more."""
    root = tmp_path_factory.mktemp("any")
    lake = Lake(root / "lake", create=True)

    def store(number: int) -> None:
        # Of neighbours every other step is the same.
        batch = Batch("steps", steps("j", number * 2, 4, ranks=1))
        ingest(lake, [batch], ingest_id=f"{number:024x}", source=f"s{number}")

    for number in range(3):
        store(number)
    for what, which in work:
        parts = sorted((lake.root / "tables").rglob("part-*"))
        records = sorted((lake.root / "commits").glob("*.json"))
        if what == "ingest":
            store(which % 3)
        elif what == "compact":
            compact(lake, minimum=2)
        elif what == "sweep":
            compact(lake, minimum=2, grace_s=0)
        elif what == "record":
            records[which % len(records)].write_bytes(b"{")
            lake = Lake(lake.root)
        elif parts and what == "lose":
            parts[which % len(parts)].unlink()
        elif parts:
            parts[which % len(parts)].write_bytes(b"PAR1")
        # Never twice, whatever happened.
        found = lake.read("steps", "j")["step"].to_pylist()
        assert len(found) == len(set(found))
    for number in range(3):
        store(number)
    assert sorted(lake.read("steps", "j")["step"].to_pylist()) == list(range(8))
    # Doctor may ask once more for one whose record was damaged.
    for number in {int(commit.id, 16) for one in lost(lake) for commit in one.inputs}:
        store(number)
    assert not any(one.inputs for one in lost(lake))
    assert sorted(lake.read("steps", "j")["step"].to_pylist()) == list(range(8))
