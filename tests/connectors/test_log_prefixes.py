"""One log that several processes write: whose line is whose, and what was executed once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.errors import InputError
from steptax.connectors.base import Options
from steptax.connectors.logs.lines import clean
from steptax.connectors.registry import connector

US = 1_000_000


def line(step: int, *, ms: float = 10_000.0, clock: str = "", loss: float = 5.0) -> str:
    return (
        f"{clock}iteration {step:8d}/    9999 | consumed samples: {step * 8:12d} | elapsed time "
        f"per iteration (ms): {ms:.1f} | lm loss: {loss:.6E} | grad norm: 0.500 |"
    )


def read(
    tmp_path: Path, text: str, **options: Any
) -> tuple[dict[str, list[dict[str, Any]]], list[str], str]:
    path = tmp_path / "log.out"
    path.write_text(text)
    rows: dict[str, list[dict[str, Any]]] = {}
    reasons: list[str] = []
    notes: list[str] = []
    for batch in connector("megatron").read(path, Options(**options)):
        rows.setdefault(batch.table, []).extend(batch.rows.to_pylist())
        reasons += [reject.reason for reject in batch.rejects]
        notes += batch.notes
    return rows, reasons, " ".join(notes)


#: What stands in front of the lines of process N, and the rank that it tells.
PREFIXES = {
    "Intel MPI": ("[{n}] ", True),
    "torchrun template": ("[{n}]: ", True),
    "torchrun rank": ("[rank{n}]: ", True),
    "rank and bar": ("rank-{n} | ", True),
    "Ray": ("(TrainWorker pid=12{n}, ip=10.0.0.{n}) ", False),
    "Ray, coloured": ("\x1b[36m(RayTrainWorker pid=12{n})\x1b[0m ", False),
    "Ray, one node": ("(pid=12{n}) ", False),
    "kubectl": ("[pod/job-worker-{n}/pytorch] ", False),
    "kubectl, stamped": ("[pod/job-worker-{n}/pytorch] 2025-11-24T07:20:26.123456789Z ", False),
    "compose": ("worker-{n}  | ", False),
    "swarm": ("train_worker.{n}.abc@node-{n}    | ", False),
    "Open MPI": ("[1,{n}]<stdout>:", True),
    "Open MPI, stamped": ("Mon Nov 24 07:20:26 2025[1,{n}]<stdout>: ", True),
    "Open MPI 5": ("[prterun-node-1-77@1,{n}]<stdout>: ", True),
    "Open MPI 5, cut": ("prterun-node-1-77@1,{n}]<stdout>:", True),
    "Cray PALS": ("x1000c0s0b0n0.site {n}: ", True),
    "pdsh": ("gpu-{n}.cluster.local: ", False),
    "srun": (" {n}: ", False),
    "pdsh and torchrun": ("node-1: [rank{n}]: ", True),
    "pdsh, addresses": ("10.0.0.{n}: ", False),
    "torchrun template, nothing between": ("[{n}]:", True),
    "torchrun template, both": ("[trainer0|{n}]:", True),
    "torchx": ("trainer/{n} ", False),
    "Horovod": ("[{n}]<stdout>:", True),
    "Horovod, stamped": ("Mon Nov 24 07:20:26 2025[{n}]<stdout>:", True),
    "SageMaker": ("[1,mpirank:{n},algo-{n}]<stdout>:", True),
    "SkyPilot": ("(worker{n}, rank={n}, pid=12{n}, ip=10.0.0.{n}) ", True),
    "Determined": ("[2025-11-24T07:20:26.123Z] 0123abcd [rank={n}] || ", True),
    "syslog": ("Nov 24 07:20:26 node{n} python3[12{n}]: ", False),
    "journalctl": ("2025-11-24T07:20:26+0000 node{n} python3[12{n}]: ", False),
    "container files": ("2025-11-24T07:20:26.123456789Z stdout F [rank{n}]: ", True),
    "rank and size": ("[rank {n}/3] ", True),
    "rank and colon": ("Rank {n}: ", True),
}


@pytest.mark.parametrize("name", PREFIXES)
def test_interleaved_processes_are_told_apart(name: str, tmp_path: Path) -> None:
    prefix, tells_rank = PREFIXES[name]
    lines = []
    for step in range(1, 8):
        for n in (0, 1, 2):
            lines.append(prefix.format(n=n) + line(step, ms=10_000 + n))
            lines.append(prefix.format(n=n).rstrip())
    rows, rejects, notes = read(tmp_path, "\n".join(lines) + "\n")
    found = sorted((r["rank"], r["step"], r["duration_us"]) for r in rows["steps"])
    ranks = (0, 1, 2) if tells_rank else (0,)
    assert found == [(n, s, 10_000_000 + n * 1000) for n in ranks for s in range(1, 8)]
    assert {r["attempt"] for r in rows["steps"]} == {0}
    assert "events" not in rows
    assert not rejects
    assert "not understood" not in notes
    assert "21 blank" in notes
    assert ("14 lines tell a step that another process" in notes) is not tells_rank


@pytest.mark.parametrize(
    ("text", "rest", "host", "rank"),
    [
        ("(A pid=7, ip=10.0.0.1) x [repeated 3x across cluster]", "x", "10.0.0.1 pid 7", None),
        ("(pid=7) x", "x", "pid 7", None),
        ("[12] x", "x", None, 12),
        ("[1] ", "", None, 1),
        ("[2025] Jan", "Jan", None, 2025),
        ("[pod/a-1/b] [rank3]: x", "x", "a-1/b", 3),
        ("iteration5 | x", "iteration5 | x", None, None),
        ("time (ms) | x: 1", "time (ms) | x: 1", None, None),
        ("[1.5] x", "[1.5] x", None, None),
        ("(head, rank=0, pid=7) x", "x", "head", 0),
        ("[1,mpirank:12,algo-2]<stderr>:x", "x", None, 12),
        ("[rank=99999999999] x", "x", None, None),
        ("Nov 24 07:20:26 n1 python[7]: [rank3]: x", "x", "n1 pid 7", 3),
        ("10.0.0.1: 12.5: x", "12.5: x", "10.0.0.1", None),
        ("step/3 x", "step/3 x", None, None),
        ("rank 3 is slow", "rank 3 is slow", None, None),
    ],
)
def test_what_comes_off(text: str, rest: str, host: str | None, rank: int | None) -> None:
    found = clean(text, 1, text)
    assert (found.text, found.host, found.rank) == (rest, host, rank)


def test_the_clock_behind_a_prefix_is_read() -> None:
    own = clean("(W pid=1, ip=10.0.0.1) [2025-11-24 07:20:26] x", 1, "")
    assert (own.at_us, own.zoned) == (1763968826 * US, False)
    # A collector's clock has its zone; the message's own may be of another one.
    stamped = clean("2025-11-24T07:20:26.5Z [2025-11-24 09:20:26] x", 1, "")
    assert (stamped.at_us, stamped.zoned) == (1763968826 * US + 500_000, True)
    mpirun = clean("Mon Nov 24 07:20:26 2025[1,0]<stdout>: x", 1, "")
    assert (mpirun.at_us, mpirun.zoned) == (1763968826 * US, False)
    assert clean("Mon Nov 24 07:20:26 2025[1,0]<stdout>: [2025-11-24 07:20:27] x", 1, "").at_us == (
        1763968827 * US
    )


def test_a_clock_without_a_zone_is_of_the_zone_that_is_named(tmp_path: Path) -> None:
    clocks = ["2026-03-29 01:59:50", "2026-03-29 03:00:00", "2026-03-29 03:00:10"]
    text = "\n".join(line(s, clock=f"[{at}] ") for s, at in enumerate(clocks, 1)) + "\n"
    rows, _, notes = read(tmp_path, text, extra={"timezone": "Europe/Berlin"})
    # The hour between the first two does not exist there.
    starts = [row["start_us"] for row in rows["steps"]]
    assert [b - a for a, b in pairwise(starts)] == [10 * US, 10 * US]
    assert starts[0] == 1774745980 * US
    assert "taken as Europe/Berlin" in notes
    zoned = text.replace("[2026", "2026-03-29T00:59:50Z [2026")
    rows, _, notes = read(tmp_path, zoned, extra={"timezone": "Asia/Tokyo"})
    assert {row["start_us"] for row in rows["steps"]} == {1774745980 * US}
    assert "taken as" not in notes


def test_lines_twice_without_a_prefix_invent_nothing(tmp_path: Path) -> None:
    twice = [line(s, ms=900.0 + s) for s in range(1, 9) for _ in range(2)]
    rows, rejects, notes = read(tmp_path, "\n".join(twice) + "\n")
    assert [(r["attempt"], r["step"]) for r in rows["steps"]] == [(0, s) for s in range(1, 9)]
    assert len(rejects) == 8
    assert all("with the same values" in reason for reason in rejects)
    assert "lines: 8 steps, 8 repeated" in notes
    assert "went back" not in notes


def test_another_process_that_nothing_names_is_no_restart(tmp_path: Path) -> None:
    """Its time differs a little; its loss, or the clock, tells that the step is the same."""
    lines = []
    for step in range(1, 8):
        clock = f"[2026-03-01 10:00:{step * 7:02d}] " if step > 3 else ""
        for ms in (7000.0, 7000.3, 6999.8):
            lines.append(line(step, ms=ms, clock=clock))
    rows, rejects, _ = read(tmp_path, "\n".join(lines) + "\n")
    assert [(r["attempt"], r["step"]) for r in rows["steps"]] == [(0, s) for s in range(1, 8)]
    assert len(rejects) == 14
    assert "events" not in rows


def test_clocks_without_step_times_tell_other_processes_from_a_restart(tmp_path: Path) -> None:
    """As torchtitan prints where nothing stands in front that names the process."""

    def said(step: int, second: int, tps: int) -> str:
        return (
            f"[titan] 2026-03-01 10:00:{second:02d},123 - root - INFO - step: {step:2d}  loss:  "
            f"{5 - step / 100:.4f}  memory: 10.35GiB(56.27%)  tps: {tps:,}  mfu: 32.76%"
        )

    def attempts(lines: list[str]) -> tuple[list[tuple[int, int]], int, bool]:
        path = tmp_path / "titan.log"
        path.write_text("\n".join(lines) + "\n")
        batches = list(connector("torchtitan").read(path, Options()))
        rows = [row for b in batches if b.table == "steps" for row in b.rows.to_pylist()]
        events = any(b.table == "events" and b.rows.num_rows for b in batches)
        rejects = sum(len(b.rejects) for b in batches)
        return [(row["attempt"], row["step"]) for row in rows], rejects, events

    side_by_side = [said(s, s, 8000 + n) for s in range(1, 9) for n in range(3)]
    assert attempts(side_by_side) == ([(0, s) for s in range(2, 9)], 16, False)
    one_by_one = [said(s, s, 8000 + n) for s in (1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6) for n in (s,)]
    assert attempts(one_by_one) == ([(0, s) for s in range(2, 7)], 6, False)
    # Training that did go back has had the time to.
    back = [said(s, 7 * i, 8000 + i) for i, s in enumerate([1, 2, 3, 4, 3, 4, 5])]
    assert attempts(back) == ([(0, 2), (0, 3), (0, 4), (1, 4), (1, 5)], 0, True)


def test_a_restart_counts_and_is_said_with_its_moment(tmp_path: Path) -> None:
    clock = "[2026-03-01 10:{:02d}:00] "
    order = [1, 2, 3, 4, 3, 4, 5]
    text = "\n".join(line(s, clock=clock.format(i)) for i, s in enumerate(order, 1)) + "\n"
    rows, rejects, notes = read(tmp_path, text)
    assert [r["attempt"] for r in rows["steps"]] == [0, 0, 0, 0, 1, 1, 1]
    assert not rejects
    assert "the step number went back once" in notes
    (back,) = rows["events"]
    again = next(r for r in rows["steps"] if (r["attempt"], r["step"]) == (1, 3))
    # Before the step that it went back to begins, so that this one is not lost with the others.
    assert back["start_us"] == again["start_us"]


def test_steps_that_no_line_tells_are_named_and_are_no_mean(tmp_path: Path) -> None:
    steps = [*range(1, 11), *range(21, 31)]
    rows, _, notes = read(tmp_path, "\n".join(line(s, ms=100.0 + s) for s in steps) + "\n")
    assert [r["step"] for r in rows["steps"]] == steps
    assert "no line tells of 10 steps (11 to 20)" in notes
    assert "means over the steps" not in notes
    intervals = {r["step"]: r.get("interval_steps") for r in rows["printed_metrics"]}
    assert (intervals[10], intervals[21], intervals[22]) == (1, None, 1)
    # A log of every tenth step is another thing.
    _, _, notes = read(tmp_path, "\n".join(line(s, ms=s) for s in range(10, 100, 10)) + "\n")
    assert "means over the steps" in notes
    assert "no line tells" not in notes


def test_a_log_that_lost_its_line_ends_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no line of it can be read") as caught:
        read(tmp_path, " ".join(line(s) for s in range(1, 9)))
    assert "line 1" in caught.value.message
    assert "line ends" in (caught.value.hint or "")


@pytest.mark.parametrize("found", ["-5.0", "1e400", "nan", "x1"])
def test_a_time_that_cannot_be_is_shown(found: str, tmp_path: Path) -> None:
    bad = line(2).replace("10000.0", found)
    _, (reason,), _ = read(tmp_path, "\n".join([line(1), bad, line(3)]) + "\n")
    assert f"found {found!r}" in reason


@pytest.mark.parametrize(
    ("world_size", "said"), [(8, "the log says 16 ranks"), (16, None), (None, None)]
)
def test_a_world_size_that_the_log_contradicts(
    world_size: int | None, said: str | None, tmp_path: Path
) -> None:
    text = "using world size: 16, data-parallel size: 16\n" + line(1) + "\n"
    _, _, notes = read(tmp_path, text, world_size=world_size)
    assert ("--world-size" in notes) == (said is not None)
    assert said is None or said in notes


def test_a_rank_beyond_the_world_size(tmp_path: Path) -> None:
    _, _, notes = read(tmp_path, f"[rank15]: {line(1)}\n", world_size=8)
    assert "rank 15 printed lines, so there are at least 16 ranks" in notes


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_interleaving_gives_each_process_its_own_steps(
    data: st.DataObject, tmp_path: Path
) -> None:
    prefix, _ = PREFIXES[data.draw(st.sampled_from([n for n, p in PREFIXES.items() if p[1]]))]
    left = {n: [line(s, ms=1000.0 + s + n / 10) for s in range(1, 12)] for n in (0, 1)}
    out = []
    for n in data.draw(st.permutations([0] * 11 + [1] * 11)):
        out.append(prefix.format(n=n) + left[n].pop(0))
    rows, rejects, _ = read(tmp_path, "\n".join(out) + "\n")
    assert not rejects
    for n in (0, 1):
        mine = [r for r in rows["steps"] if r["rank"] == n]
        assert [r["duration_us"] for r in mine] == [
            1_000_000 + s * 1000 + n * 100 for s in range(1, 12)
        ]
        assert all(b["step"] - a["step"] == 1 for a, b in pairwise(mine))
        assert {r["attempt"] for r in mine} == {0}
