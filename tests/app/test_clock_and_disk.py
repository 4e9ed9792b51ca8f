"""A clock that jumps and a disk that is read only: nothing is lost, nothing doubled."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.app.lake.compact import compact
from steptax.app.views.workspace import open_workspace
from steptax.app.watch import Watch
from steptax.connectors.base import Options
from tests.app.fleet_lake import RANKS, S, job, rows, steps, us
from tests.team_lake import store_team

HOUR_NS = 3_600_000_000_000


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the clock of this process some hours off; calls add up."""
    real_ns, real_s = time.time_ns, time.time
    off = [0]

    def by(hours: float) -> None:
        off[0] += int(hours * HOUR_NS)

    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + off[0])
    monkeypatch.setattr(time, "time", lambda: real_s() + off[0] / 1e9)
    return by


def test_jumps_of_hours_lose_and_double_nothing(tmp_path: Path, jump: Any) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    path = tmp_path / "a.csv"
    head = "step,rank,duration_ms\n"
    lines = [f"{step},{rank},10\n" for step in range(12) for rank in range(2)]
    for k, hours in enumerate((0, -5, +9, -48, +2)):
        jump(hours)
        found = steps("live", us(2026, 3, 1) + k * 5 * S, 5, length=S, first=5 * k)
        lake.append("steps", rows(found), source="x")
        path.write_text(head + "".join(lines[: 4 * (k + 1)]))
        watch = Watch(lake, "steps", path, Options(job_id="grown"))
        list(watch.look(settled=True))
        watch.close()
        compact(lake, minimum=2, grace_s=0.0)
        assert lake.read("steps", "live").num_rows == 5 * (k + 1) * RANKS
        assert lake.read("steps", "grown").num_rows == 4 * (k + 1)
    seen = {(r["step"], r["rank"]) for r in lake.read("steps", "live").to_pylist()}
    assert len(seen) == 25 * RANKS
    again = ingest_file(lake, "steps", path, Options(job_id="grown"))
    assert again.accepted.get("steps", 0) == 0
    assert lake.set_aside() == []


def test_a_listing_follows_a_clock_that_went_back(tmp_path: Path, jump: Any) -> None:
    jump(+24)
    lake = Lake(tmp_path / "lake", create=True)
    lake.append("jobs", rows([job("a", 0, S)]), source="x")
    assert open_workspace(lake.root).job_ids() == ["a"]
    ws = open_workspace(lake.root)
    jump(-48)
    for name in ("b", "c"):
        lake.append("jobs", rows([job(name, 0, S)]), source="x")
        assert name in ws.job_ids()


def test_a_disk_that_is_read_only_is_read(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare on this machine")
    lake = Lake(tmp_path / "lake", create=True)
    store_team(lake, "alpha")
    damaged = lake.append("steps", rows(steps("b", us(2026, 3, 1), 5)), source="x")[0]
    lake.append("steps", rows(steps("b", us(2026, 3, 1), 5, first=5)), source="x")
    damaged.write_bytes(damaged.read_bytes()[:-9])
    (tmp_path / "new.csv").write_text("step,rank,duration_ms\n0,0,10\n0,1,12\n")
    before = sorted(p for p in lake.root.rglob("*"))

    def on_read_only(*arguments: str) -> tuple[int, dict[str, Any]]:
        command = [sys.executable, "-m", "steptax.app.cli", *arguments]
        script = f"mount --bind {lake.root} {lake.root} && mount -o remount,ro,bind {lake.root}"
        done = subprocess.run(
            [unshare, "--mount", "sh", "-c", f'{script} || exit 99; exec "$@"', "sh", *command],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode == 99 or "unshare failed" in done.stderr:
            pytest.skip("no disk can be mounted read only here")
        return done.returncode, json.loads(done.stdout)

    root = ["--lake", str(lake.root), "--json"]
    code, said = on_read_only("job", "alpha-run", *root)
    assert (code, said["ok"]) == (0, True)
    code, said = on_read_only("job", "b", *root)  # the damaged segment is passed over
    assert (code, said["ok"]) == (0, True)
    assert said["data"]["coverage"]["steps_used"] == 5
    code, said = on_read_only("ingest", "steps", str(tmp_path / "new.csv"), *root)
    assert (code, said["ok"]) == (2, False)
    assert said["error"]["message"] == "cannot write: Read-only file system"
    assert "mount it writable" in said["error"]["hint"]
    code, said = on_read_only("doctor", *root)
    texts = [f["text"] for f in said["data"]["findings"] if f["check"] == "permissions"]
    assert any("not be written" in text for text in texts)
    assert sorted(p for p in lake.root.rglob("*")) == before


#: On a small disk: one job, one that is too large, and a budget where there is no room at all.
FULL = """
import subprocess, sys
from decimal import Decimal
from pathlib import Path
from steptax.app.commands.output import exit_code_of
from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.app.views.review.budget import set_budget
from steptax.app.views.workspace import open_workspace
from steptax.connectors.base import Options

folder = Path(sys.argv[1])
disk = folder / "disk"
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", disk]).returncode:
    sys.exit(99)
lake = Lake(disk / "lake", create=True)

def tried(write):
    try:
        write()
    except OSError as error:
        assert exit_code_of(error, as_json=True) == 2

ingest_file(lake, "steps", folder / "one.csv", Options(job_id="one"))
tried(lambda: ingest_file(lake, "steps", folder / "big.csv", Options(job_id="big")))
tried(lambda: (disk / "rest").write_bytes(bytes(10**6)))
tried(lambda: set_budget(open_workspace(lake.root), scope="all", period="2026-12",
                         budget_usd=Decimal(5), goodput_slo_ratio=None, set_by="me"))
assert [Lake(lake.root).read("steps", job).num_rows for job in ("one", "big")] == [2, 0]
assert not list(disk.rglob("*.tmp"))
"""


def test_a_disk_that_is_full_is_named_and_nothing_half_is_left(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare on this machine")
    (tmp_path / "disk").mkdir()
    noise = random.Random(0)
    head = "step,rank,duration_ms\n"
    (tmp_path / "one.csv").write_text(f"{head}0,0,10\n0,1,12\n")
    (tmp_path / "big.csv").write_text(
        head + "".join(f"{step},0,{noise.random() * 1000:.3f}\n" for step in range(40_000))
    )
    done = subprocess.run(
        [unshare, "--mount", sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode == 99 or "unshare failed" in done.stderr:
        pytest.skip("no disk can be mounted here")
    assert done.returncode == 0, done.stderr
    said = [one["error"] for one in json.loads("[" + done.stdout.replace("}\n{", "},{") + "]")]
    assert len(said) == 3
    for one in said:
        assert one["kind"] == "UserError"
        assert one["message"] == "cannot write: No space left on device"
        assert "free some space" in one["hint"]
    assert all(one["where"].startswith(f"{tmp_path}/disk/lake/tables/") for one in said[::2])
