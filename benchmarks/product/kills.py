"""Kills what writes to a lake, at random moments, and counts what is lost, doubled or torn.

    python -m steptax.benchmarks.product.kills [--kills 200] [--seed 0]

Real processes ingest files, follow a growing file, merge segments, make roll-ups and fold the log
of merges; each is ended by SIGKILL somewhere between its first and its last write. After every kill
a reader that knows nothing of it reads the whole lake:

* what had been said to be stored is there, every row once (rows lost, rows doubled);
* an input is there whole or not at all (rows torn);
* no file is damaged, and the same work can be done again to its end.

Prints kills survived / tried for each kind of work, and the rows.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.app.lake.compact import compact
from steptax.app.lake.fold import fold_log
from steptax.app.lake.rollups import lacking, roll_up
from steptax.app.schema.rollups import DEVICES
from steptax.app.watch import Stored, Watch
from steptax.benchmarks.product import flags
from steptax.connectors.base import Options

RANKS = 16
STEPS = 120
#: Samples of a segment that gets a roll-up of its own.
SAMPLES = 20_000
#: A kill that comes when the work is over is none; so often another moment is tried.
ATTEMPTS = 12
DONE = b"done"


@dataclass
class Outcome:
    """What became of the kills of one kind of work."""

    work: str
    tried: int = 0
    survived: int = 0
    rows_lost: int = 0
    rows_doubled: int = 0
    rows_torn: int = 0
    faults: list[str] = field(default_factory=list)


def main(arguments: list[str] | None = None) -> int:
    """Run all kinds of work; 0 where nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--kills", type=flags.count, default=200, help="over all kinds of work together"
    )
    parser.add_argument("--seed", type=flags.whole, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    found = run(asked.kills, asked.seed)
    if asked.json:
        print(orjson.dumps([vars(one) for one in found], option=orjson.OPT_INDENT_2).decode())
    else:
        for one in found:
            print(
                f"{one.work:10} kills survived {one.survived}/{one.tried}, rows lost "
                f"{one.rows_lost}, doubled {one.rows_doubled}, torn {one.rows_torn}"
            )
            for fault in one.faults[:5]:
                print(f"  {fault}")
        tried, survived = (sum(getattr(o, n) for o in found) for n in ("tried", "survived"))
        print(f"all        kills survived {survived}/{tried}, rows lost {_sum(found, 'rows_lost')}")
    return 0 if all(one.survived == one.tried for one in found) else 1


def run(kills: int, seed: int = 0) -> list[Outcome]:
    """Spread ``kills`` over the kinds of work; what became of them."""
    random_ = random.Random(seed)
    share = [kills // len(WORKS) + (k < kills % len(WORKS)) for k in range(len(WORKS))]
    with tempfile.TemporaryDirectory(prefix="steptax-kills-") as folder:
        return [
            Site(name, Path(folder) / name, random_).killed(count)
            for name, count in zip(WORKS, share, strict=True)
        ]


# -- the work, in a process of its own -----------------------------------------------------------


def _ingest(lake: Path, given: Path, say: Callable[[bytes], None]) -> None:
    ingest_file(Lake(lake), "steps", given, Options(job_id=given.stem))
    say(given.stem.encode())


def _watch(lake: Path, given: Path, say: Callable[[bytes], None]) -> None:
    """Follows ``given``, which grows before each look; says how many rows are stored."""
    watch = Watch(Lake(lake), "steps", given, Options(job_id=given.stem))
    pieces = given.with_suffix(".pieces").read_text().split("\0")
    with watch.alone():
        while True:
            whole = given.read_text()
            left = "".join(pieces)[len(whole) :]
            for found in watch.look(settled=not left):
                if isinstance(found, Stored):
                    say(b"stored")
            if not left:
                return
            with given.open("a") as handle:
                handle.write(left[: len(pieces[1])])


def _compact(lake: Path, given: Path, say: Callable[[bytes], None]) -> None:
    compact(Lake(lake), minimum=2, grace_s=0.0)


def _roll_up(lake: Path, given: Path, say: Callable[[bytes], None]) -> None:
    store = Lake(lake)
    roll_up(
        store.root,
        "device_samples",
        [s.path for s in lacking(store.root, DEVICES, store.segments("device_samples"))],
    )


def _fold(lake: Path, given: Path, say: Callable[[bytes], None]) -> None:
    store = Lake(lake)
    with store.commits.compacting(store.root) as alone:
        if alone:
            fold_log(store, grace_s=0.0, age_s=0.0, minimum=1)


WORKS: dict[str, Callable[[Path, Path, Callable[[bytes], None]], None]] = {
    "ingest": _ingest,
    "watch": _watch,
    "compact": _compact,
    "roll-up": _roll_up,
    "fold": _fold,
}


def _child(work: str, lake: Path, given: Path, pipe: Connection) -> None:
    pipe.send_bytes(b"begin")
    WORKS[work](lake, given, pipe.send_bytes)
    pipe.send_bytes(DONE)


# -- the site that it works on, and what must be true of it --------------------------------------


class Site:
    """A lake, what was put into it, and the kills."""

    def __init__(self, work: str, folder: Path, random_: random.Random) -> None:
        self.work = work
        self.folder = folder
        self.lake = folder / "lake"
        self.outcome = Outcome(work)
        self._random = random_
        self._inputs = 0
        self._stored: dict[str, int] = {}
        """Rows that the work has said to be stored, by job."""
        self._late: dict[Path, bytes] = {}
        self._takes_s = 0.5
        folder.mkdir()
        Lake(self.lake, create=True)
        # A server that has everything imported makes children that are at work at once.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(
            ["steptax.app.ingest", "steptax.app.watch", "steptax.app.lake.compact"]
        )

    def killed(self, count: int) -> Outcome:
        """Kill ``count`` times, look after each, and end the work after each."""
        for _ in range(count):
            self.outcome.tried += 1
            before = len(self.outcome.faults)
            given = self._prepare()
            self._kill_once(given)
            self._look(f"after kill {self.outcome.tried}", finished=False, given=given)
            self._finish(given)
            self._look(f"after kill {self.outcome.tried} and its end", finished=True, given=given)
            self.outcome.survived += len(self.outcome.faults) == before
        return self.outcome

    def _prepare(self) -> Path:
        """Something to do: an input, or small segments to merge or to sum up."""
        self._inputs += 1
        name = f"job-{self._inputs:04d}"
        if self.work in ("ingest", "watch"):
            lines = [
                f"{step},{rank},{10_000 + step * 7 + rank},{8_000 + rank}\n"
                for step in range(STEPS)
                for rank in range(RANKS)
            ]
            head = "step,rank,duration_us,compute_us\n"
            path = self.folder / f"{name}.csv"
            if self.work == "ingest":
                path.write_text(head + "".join(lines))
            else:
                size = len(lines) // 8
                pieces = ["".join(lines[k : k + size]) for k in range(0, len(lines), size)]
                path.with_suffix(".pieces").write_text("\0".join([head, *pieces]))
                path.write_text(head)
            return path
        lake = Lake(self.lake)
        if self.work in ("compact", "fold"):
            for part in range(6):
                (path,) = lake.append("steps", _steps(name, part * 20, 20), source="kills")
                if self.work == "fold" and part:
                    # What a sender may write once more after its merge was folded.
                    self._late[path] = path.read_bytes()
                    compact(lake, minimum=2, grace_s=0.0)
            self._stored[name] = 120 * RANKS
        else:
            for part in range(2):
                rows = _samples(f"{name}-{part}")
                path = lake.append("device_samples", rows, source="kills")[0]
                for level in DEVICES.levels:  # an append makes them; here the work does
                    _rolled(self.lake, level, path).unlink()
            self._stored[name] = 2 * SAMPLES
        return self.folder / name

    def _kill_once(self, given: Path) -> None:
        """Kill while it works; a work that was over before is begun anew on something else."""
        for _ in range(ATTEMPTS):
            ours, theirs = self._context.Pipe()
            process = self._context.Process(
                target=_child, args=(self.work, self.lake, given, theirs)
            )
            process.start()
            theirs.close()
            assert ours.recv_bytes() == b"begin"
            began_s = time.monotonic()
            time.sleep(self._random.uniform(0.0, self._takes_s))
            process.kill()
            process.join()
            said = _said(ours)
            if process.exitcode == -signal.SIGKILL and DONE not in said:
                self._note(given, said)
                return
            self._takes_s = max(0.02, 0.8 * (time.monotonic() - began_s))
            self._note(given, said)
            if self.work == "ingest" and said:
                self._stored[given.stem] = STEPS * RANKS
            given = self._prepare()
        self.outcome.faults.append(f"the work ended before each of {ATTEMPTS} kills")

    def _note(self, given: Path, said: list[bytes]) -> None:
        if self.work == "ingest" and given.stem.encode() in said:
            self._stored[given.stem] = STEPS * RANKS

    def _finish(self, given: Path) -> None:
        """The same work again, to its end, in this process."""
        try:
            WORKS[self.work](self.lake, given, lambda _: None)
        except Exception as error:
            self.outcome.faults.append(f"could not be done again: {error}")
            return
        if self.work in ("ingest", "watch"):
            self._stored[given.stem] = STEPS * RANKS
        for path, body in self._late.items():
            path.write_bytes(body)
        self._late = {}

    def _look(self, when: str, *, finished: bool, given: Path) -> None:
        """Everything that must be true of the lake, as a new reader finds it."""
        lake = Lake(self.lake)
        try:
            if self.work == "roll-up":
                self._look_at_samples(lake, when)
            else:
                self._look_at_steps(lake, when, given)
        except Exception as error:
            self._fault(f"{when}: cannot be read: {error}")
        for aside in lake.set_aside():
            self._fault(f"{when}: {aside.place} is damaged: {aside.reason}")

    def _look_at_steps(self, lake: Lake, when: str, given: Path) -> None:
        for job in {*self._stored, *lake.job_ids("steps")}:
            rows = lake.read("steps", job)
            once = rows.group_by(["attempt", "step", "rank"]).aggregate([]).num_rows
            due = self._stored.get(job)
            self.outcome.rows_doubled += rows.num_rows - once
            if rows.num_rows != once:
                self._fault(f"{when}: {rows.num_rows - once} rows of {job} twice")
            if due is not None and once < due:
                self.outcome.rows_lost += due - once
                self._fault(f"{when}: {due - once} rows of {job} are gone")
            if self.work == "ingest" and due is None and once not in (0, STEPS * RANKS):
                self.outcome.rows_torn += once
                self._fault(f"{when}: {once} rows of {job}, which is neither none nor all")
            if due is not None and self.work not in ("compact", "fold"):
                wanted = sum(
                    10_000 + step * 7 + rank for step in range(STEPS) for rank in range(RANKS)
                )
                if pc.sum(rows["duration_us"]).as_py() != wanted:
                    self._fault(f"{when}: values of {job} are not those of its file")

    def _look_at_samples(self, lake: Lake, when: str) -> None:
        from steptax.app.queries import DuckEngine

        due = sum(self._stored.values())
        rows = sum(s.rows for s in lake.segments("device_samples"))
        sums = DuckEngine(lake).run("device_sums_by_day", first_us=0, last_us=2**62)
        summed = pc.sum(sums["samples"]).as_py() or 0
        for found, what in ((rows, "rows"), (summed, "rows in sums")):
            self.outcome.rows_lost += max(0, due - found)
            self.outcome.rows_doubled += max(0, found - due)
            if found != due:
                self._fault(f"{when}: {found:,} {what} where {due:,} were stored")

    def _fault(self, text: str) -> None:
        self.outcome.faults.append(text)


def _said(pipe: Connection) -> list[bytes]:
    found = []
    try:
        while pipe.poll(0):
            found.append(pipe.recv_bytes())
    except (EOFError, OSError):
        pass
    return found


def _rolled(root: Path, level: str, segment: Path) -> Path:
    from steptax.app.lake.rollups import rollup_path

    return rollup_path(root, DEVICES, level, segment)


def _steps(job: str, first: int, count: int) -> pa.Table:
    steps = [first + k for k in range(count) for _ in range(RANKS)]
    ranks = list(range(RANKS)) * count
    return pa.table(
        {
            "job_id": [job] * len(steps),
            "attempt": pa.array([0] * len(steps), pa.int32()),
            "step": steps,
            "rank": pa.array(ranks, pa.int32()),
            "duration_us": [
                10_000 + step * 7 + rank for step, rank in zip(steps, ranks, strict=True)
            ],
        }
    )


def _samples(name: str) -> pa.Table:
    return pa.table(
        {
            "host": [name] * SAMPLES,
            "gpu_uuid": [f"GPU-{name}"] * SAMPLES,
            "ts_us": [1_790_000_000_000_000 + k * 1_000_000 for k in range(SAMPLES)],
            "power_w": [500.0 + k % 97 for k in range(SAMPLES)],
        }
    )


def _sum(found: list[Outcome], name: str) -> int:
    return sum(int(getattr(one, name)) for one in found)


if __name__ == "__main__":
    from steptax.benchmarks.product import kills

    # Under its own name, which the processes it starts import.
    raise SystemExit(kills.main())
