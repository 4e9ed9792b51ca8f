"""The benchmark of reading traces measures what it says, and memory stays below the file's size."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from steptax.benchmarks.product import kineto as benchmark
from steptax.benchmarks.product.kineto import Job
from steptax.benchmarks.product.kineto_peer import Duel, Side, duel


def test_a_made_up_trace_is_read_whole(tmp_path: Path) -> None:
    job = Job(ranks=1, steps=3, cpu_ops=1)
    [path], played = benchmark.write(job, tmp_path)
    found = benchmark.measure(path)
    kernels = sum(e.category == "kernel" for e in played.events[0])
    # Each communication comes with the moment at which it could have begun.
    assert found["rows"]["ops"] == kernels + job.layers * job.steps + job.steps
    assert found["rows"]["steps"] == job.steps
    assert found["rows"]["collectives"] == job.layers * job.steps
    assert found["mib"] == pytest.approx(path.stat().st_size / 2**20)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc of Linux")
def test_memory_grows_by_less_than_the_file(tmp_path: Path) -> None:
    # Host operations, of which real traces mostly consist, are not kept.
    [path], _ = benchmark.write(Job(ranks=1, steps=700, cpu_ops=20), tmp_path)
    found = benchmark.measure(path)
    assert found["mib"] > 50
    assert found["grew_mib"] < found["mib"]


def test_a_long_trace_repeats_its_steps_as_later_ones(tmp_path: Path) -> None:
    job = Job(ranks=1, steps=2, layers=1, cpu_ops=0)
    events = benchmark.play(job).events[0]
    text = "".join(benchmark.lines(job, 0, events, rounds=3))
    found: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    assert len(found) == 3 * len(events)
    steps = [e for e in found if e["name"].startswith("ProfilerStep")]
    assert [e["name"] for e in steps] == [f"ProfilerStep#{n}" for n in range(10, 16)]
    # Times are written to the nanosecond.
    assert all(a["ts"] + a["dur"] <= b["ts"] + 2e-3 for a, b in itertools.pairwise(steps))
    launches = [e["args"]["correlation"] for e in found if e["cat"] == "cuda_runtime"]
    assert len(set(launches)) == len(launches)
    work = [e["args"]["correlation"] for e in found if e["cat"] == "kernel"]
    assert sorted(work) == sorted(launches)


def test_it_runs_without_a_peer(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.argv", ["kineto", "--mib", "0.1"])
    assert benchmark.main() == 0
    assert "MiB/s" in capsys.readouterr().out


#: A stand-in for the peer: an interpreter that answers with what a file beside it says.
PEER = """#!{python}
import json, os, pathlib
answers = json.loads(pathlib.Path({answers!r}).read_text())
exact = "HTA_DISABLE_NS_ROUNDING" in os.environ
print(json.dumps(answers["exact" if exact else "rounded"]))
"""


def peer(folder: Path, told: dict[str, dict[str, float | None]]) -> Path:
    common = {
        "load_s": 9.0,
        "analyse_s": 1.0,
        "peak_mib": 900.0,
        "grew_mib": 800.0,
        "version": "0",
        "pandas": "0",
    }
    answers = folder / "answers.json"
    answers.write_text(json.dumps({k: common | {"told": v} for k, v in told.items()}))
    path = folder / "python"
    path.write_text(PEER.format(python=sys.executable, answers=str(answers)))
    path.chmod(0o755)
    return path


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc of Linux")
def test_two_sides_are_compared_to_the_microsecond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [trace], _ = benchmark.write(Job(ranks=1, steps=3, layers=1), tmp_path)
    none: dict[str, float | None] = dict.fromkeys(
        ("idle_us", "compute_us", "non_compute_us", "overlap_ratio"), -5.0
    )
    first = duel(trace, peer(tmp_path, {"exact": none, "rounded": none}))
    assert not first.agree
    assert "  THEY DIFFER" in first.lines()
    assert first.ours_exact.parts is not None
    assert first.ours_rounded.parts is not None
    same = {"exact": dict(first.ours_exact.parts), "rounded": dict(first.ours_rounded.parts)}
    second = duel(trace, peer(tmp_path, same))
    assert second.agree
    assert second.times_faster == pytest.approx(9.0 / second.ours_rounded.load_s)
    assert second.memory_share == pytest.approx(second.ours_rounded.peak_mib / 900.0)
    same["rounded"]["idle_us"] = (same["rounded"]["idle_us"] or 0.0) + 1.5
    other = peer(tmp_path, same)
    assert not duel(trace, other).agree
    arguments = ["kineto", "--mib", "0.1", "--peer", str(other)]
    monkeypatch.setattr("sys.argv", arguments)
    assert benchmark.main() == 1
    assert "THEY DIFFER" in capsys.readouterr().out
    other.write_text("#!/bin/sh\necho it is sad >&2\nexit 3\n")
    assert benchmark.main() == 1
    assert "not read by the peer: it is sad" in capsys.readouterr().out


def test_a_trace_without_device_agrees_if_both_see_none(tmp_path: Path) -> None:
    none = Side(None, 1.0, 1.0, 1.0, 1.0)
    some = Side({"idle_us": 1.0, "overlap_ratio": None}, 1.0, 1.0, 1.0, 1.0)
    path = tmp_path / "t.json"
    assert Duel(path, none, none, none, none, "0").agree
    assert not Duel(path, some, none, none, none, "0").agree
    assert Duel(path, some, some, some, some, "0").agree
