"""Holds many browser sessions on a live job and measures what each answer takes.

    python -m steptax.benchmarks.product.sessions [--sessions 50] [--seconds 600]

A page server runs in a process of its own; a job is written to its lake two steps a second, behind
as many as a page looks back on, so that the memory that is found to grow is not its window. Each
session is a real websocket that speaks Streamlit's protocol as its browser side does: it opens a
page, and then asks again for each part that the server tells it to refresh, as often as it tells.
An answer is timed from the question to the word that the run has ended. Small segments are
merged each minute, as a collector does. Prints the sessions held, errors, the answers' p50 and p95,
processor seconds of the server, and its memory: after the first quarter, at its end, and the slope
between. What else ran on the machine is told by its load.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.util import calc_hash
from websockets.asyncio.client import ClientConnection, connect

from steptax.app.collect.service import COMPACT_S
from steptax.app.lake import Lake
from steptax.app.lake.compact import compact
from steptax.app.lake.segments import job_folder
from steptax.app.serve import free_port, server_command, wait_until_healthy
from steptax.benchmarks.product import flags
from steptax.benchmarks.product.process import cpu_s, resident_mib

JOB = "live-job"
RANKS = 64
STEP_S = 0.5
#: Stored before the first session: more steps than the window that a page opens with (500).
STORED_STEPS = 640
#: Pages that the sessions open in turn, with what stands behind their address.
PAGES = ("job", "job", "job", "fleet", "", "whatif")
#: A session goes on to the next page after so long.
STAY_S = 60.0
#: Of the server's log so much is told where a page failed.
LOG_CHARACTERS = 4_000
#: An answer that takes longer counts as an error.
PATIENCE_S = 60.0
#: How a run ends that another one follows at once.
_ANEW = ForwardMsg.ScriptFinishedStatus.FINISHED_EARLY_FOR_RERUN
#: Seconds of a run from which on its memory tells, and by how much it may grow in it.
_TELLING_S, _GROWTH_RATIO = 300.0, 0.1
LIMIT = "no errors, memory flat"


@dataclass
class Measured:
    """What the sessions saw, and what the server used."""

    held: int = 0
    answers_s: list[float] = field(default_factory=list)
    refreshes_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    """What one reader waited for each kind of page of a server that had only just begun."""
    server_cpu_s: float = 0.0
    """From when it was ready to its end."""
    said: str = ""
    """The last that the server wrote into its log, where a page failed."""


class Session:
    """One browser tab."""

    def __init__(self, url: str, number: int, measured: Measured) -> None:
        self._url = url
        self._number = number
        self._measured = measured

    async def run(self, until_s: float) -> None:
        """Open pages and refresh them until ``until_s`` of the monotonic clock."""
        try:
            async with connected(self._url) as socket:
                self._measured.held += 1
                visit = self._number
                while time.monotonic() < until_s:
                    page = PAGES[visit % len(PAGES)]
                    visit += 1
                    leave_s = min(until_s, time.monotonic() + STAY_S)
                    await self._visit(socket, page, leave_s)
        except Exception as error:
            self._measured.errors.append(f"session {self._number}: {type(error).__name__}: {error}")

    async def each_page(self) -> None:
        """Ask for each kind of page once."""
        async with connected(self._url) as socket:
            for page in dict.fromkeys(PAGES):
                await self._ask(socket, page, None, self._measured.answers_s)

    async def _visit(self, socket: ClientConnection, page: str, leave_s: float) -> None:
        fragments = await self._ask(socket, page, None, self._measured.answers_s)
        due_s = {name: time.monotonic() + every_s for name, every_s in fragments.items()}
        while due_s and min(due_s.values()) < leave_s:
            # As often as each is told and no sooner: there is one answer at a time, as in a tab.
            fragment = min(due_s, key=due_s.__getitem__)
            await asyncio.sleep(max(0.0, due_s[fragment] - time.monotonic()))
            fragments |= await self._ask(socket, page, fragment, self._measured.refreshes_s)
            due_s[fragment] = max(due_s[fragment] + fragments[fragment], time.monotonic())
        await asyncio.sleep(max(0.0, leave_s - time.monotonic()))

    async def _ask(
        self, socket: ClientConnection, page: str, fragment: str | None, times_s: list[float]
    ) -> dict[str, float]:
        """Ask for a page or a part of it; the parts that are to be refreshed, and how often."""

        def read(message: ForwardMsg) -> None:
            if message.WhichOneof("type") != "delta":
                return
            element = message.delta.new_element
            if element.WhichOneof("type") == "exception":
                text = element.exception.message[:200]
                self._measured.errors.append(f"page {page or 'executive'}: {text}")

        begin_s = time.monotonic()
        fragments = await ask(socket, page, JOB, fragment, read)
        times_s.append(time.monotonic() - begin_s)
        return fragments


def connected(url: str) -> connect:
    """A browser's connection to the page server at ``url``."""
    return connect(
        url.replace("http", "ws", 1) + "/_stcore/stream",
        origin=url,  # type: ignore[arg-type]
        subprotocols=["streamlit"],  # type: ignore[list-item]
        max_size=None,
    )


async def ask(
    socket: ClientConnection,
    page: str,
    job: str,
    fragment: str | None,
    read: Callable[[ForwardMsg], None],
    more: str = "",
) -> dict[str, float]:
    """Ask for a page about ``job``, or for a part of it, and give what comes to ``read``.

    ``more`` is what else stands in the address, from its ``&``.

    A part that finds the page out of date has it drawn anew: the answer ends with that. Returns the
    parts that are to be asked for again, and how often in seconds; none where only a part was
    drawn. TimeoutError where an answer takes longer than ``PATIENCE_S``.
    """
    question = BackMsg()
    question.rerun_script.query_string = f"job={job}{more}"
    question.rerun_script.page_name = page
    if fragment is not None:
        question.rerun_script.fragment_id = fragment
        # A browser names the page that it shows so: it is drawn anew where a part asks for it.
        question.rerun_script.page_script_hash = calc_hash(page)
    await socket.send(question.SerializeToString())
    fragments: dict[str, float] = {}
    while True:
        raw = await asyncio.wait_for(socket.recv(), PATIENCE_S)
        answer = ForwardMsg()
        answer.ParseFromString(raw if isinstance(raw, bytes) else raw.encode())
        read(answer)
        if answer.WhichOneof("type") == "new_session":
            fragments.clear()  # those of a page that found itself out of date while it was drawn
        elif answer.WhichOneof("type") == "auto_rerun":
            fragments[answer.auto_rerun.fragment_id] = answer.auto_rerun.interval
        elif answer.WhichOneof("type") == "script_finished" and answer.script_finished != _ANEW:
            return fragments


class LiveJob(threading.Thread):
    """Appends a step of all ranks every half second, with a sign of life."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(daemon=True)
        self._lake = lake
        self._over = threading.Event()
        now_us = time.time_ns() // 1000
        first_us = now_us - int(STORED_STEPS * STEP_S * 1e6)
        record = {"job_id": [JOB], "team": ["a"], "state": ["running"], "start_us": [first_us]}
        lake.append("jobs", pa.table(record | {"world_size": [RANKS]}), source="benchmark")
        begun_us = [first_us + int(step * STEP_S * 1e6) for step in range(STORED_STEPS)]
        stored = [_rows(step, at_us) for step, at_us in enumerate(begun_us)]
        lake.append("steps", pa.concat_tables(stored), source="benchmark")
        self._beat(now_us)

    def run(self) -> None:
        """Write until it is stopped."""
        step = STORED_STEPS
        merged_s = time.monotonic()
        while not self._over.wait(STEP_S):
            now_us = time.time_ns() // 1000
            self._lake.append("steps", _rows(step, now_us), source="benchmark")
            self._beat(now_us)
            step += 1
            if time.monotonic() - merged_s > COMPACT_S:
                compact(self._lake)
                merged_s = time.monotonic()

    def stop(self) -> None:
        """End it."""
        self._over.set()
        self.join()

    def _beat(self, now_us: int) -> None:
        folder = self._lake.root / "live" / job_folder(JOB)
        folder.mkdir(parents=True, exist_ok=True)
        beats = [{"rank": r, "ts_us": now_us, "state": "running"} for r in range(RANKS)]
        partial = folder / ".beats.tmp"
        partial.write_bytes(orjson.dumps(beats))
        partial.rename(folder / "beats-benchmark.json")


def _rows(step: int, start_us: int) -> pa.Table:
    """One step of all ranks, of which one is slow."""
    rng = np.random.default_rng(step)
    work_us = (400_000 + rng.normal(0, 4_000, RANKS)).astype(np.int64)
    work_us[3] += 80_000
    rows: dict[str, Any] = {
        "job_id": [JOB] * RANKS,
        "attempt": pa.array([0] * RANKS, pa.int32()),
        "step": [step] * RANKS,
        "rank": pa.array(range(RANKS), pa.int32()),
        "start_us": [start_us] * RANKS,
        "duration_us": [int(work_us.max()) + 20_000] * RANKS,
        "compute_us": work_us,
        "comm_us": int(work_us.max()) + 20_000 - work_us,
    }
    return pa.table(rows)


def measure(sessions: int, seconds: float) -> Measured:
    """Hold ``sessions`` for ``seconds``."""
    measured = Measured()
    with tempfile.TemporaryDirectory(prefix="steptax-sessions-") as folder:
        lake = Lake(Path(folder) / "lake", create=True)
        job = LiveJob(lake)
        job.start()
        port = free_port(8900)
        environment = dict(os.environ) | {
            "STEPTAX_LAKE": str(lake.root),
            "STEPTAX_PRICE_USD_PER_GPU_HOUR": "2",
        }
        log = Path(folder) / "server.log"
        with log.open("wb") as out:
            server = subprocess.Popen(
                server_command("127.0.0.1", port), env=environment, stdout=out, stderr=out
            )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_healthy(url, server)
            begun_cpu_s = cpu_s(server.pid)
            asyncio.run(_hold(url, server.pid, sessions, seconds, measured))
            measured.server_cpu_s = cpu_s(server.pid) - begun_cpu_s
        finally:
            job.stop()
            server.terminate()
            server.wait(timeout=20)
        if measured.errors:
            measured.said = log.read_text(errors="replace")[-LOG_CHARACTERS:]
    return measured


async def _hold(url: str, pid: int, sessions: int, seconds: float, measured: Measured) -> None:
    # A server that has just begun is still importing: that is told, and not what is asked here.
    first = Measured()
    await Session(url, 0, first).each_page()
    measured.first_s, measured.errors = first.answers_s, first.errors
    until_s = time.monotonic() + seconds

    async def weigh() -> None:
        while True:
            measured.memory_mib.append(resident_mib(pid))
            await asyncio.sleep(min(10.0, seconds / 10))

    async def one(number: int) -> None:
        # Nobody opens fifty tabs in the same instant.
        await asyncio.sleep(min(30.0, seconds / 10) * number / sessions)
        await Session(url, number, measured).run(until_s)

    weighing = asyncio.create_task(weigh())
    await asyncio.gather(*(one(number) for number in range(sessions)))
    weighing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await weighing


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; 0 where every session was held without an error and memory stayed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--sessions", type=flags.count, default=50)
    parser.add_argument("--seconds", type=flags.amount, default=600.0)
    asked = parser.parse_args(arguments)
    found = measure(asked.sessions, asked.seconds)
    out = sys.stdout
    out.write(
        f"sessions held {found.held}/{asked.sessions} for {asked.seconds:.0f} s, "
        f"{len(found.errors)} errors\n"
    )
    if found.first_s:
        out.write(f"first   pages of a server just begun, up to {max(found.first_s):.1f} s each\n")
    for name, times_s in (("page", found.answers_s), ("refresh", found.refreshes_s)):
        if times_s:
            p50, p95 = np.percentile(times_s, [50, 95])
            out.write(f"{name:8}{len(times_s):8,} answers, p50 {p50:.2f} s, p95 {p95:.2f} s\n")
    answers = len(found.answers_s) + len(found.refreshes_s)
    out.write(
        f"server  {found.server_cpu_s:,.1f} processor seconds, "
        f"{found.server_cpu_s / max(answers, 1):.3f} an answer; load {os.getloadavg()[1]:.1f} on "
        f"{os.cpu_count()} processors over the last 5 minutes\n"
    )
    later = found.memory_mib[len(found.memory_mib) // 4 :]
    if len(later) > 2:
        slope = np.polyfit(np.linspace(0, 0.75 * asked.seconds / 60, len(later)), later, 1)[0]
        out.write(
            f"memory  {later[0]:,.0f} MiB after the first quarter, {later[-1]:,.0f} MiB at the "
            f"end, {slope:+.1f} MiB a minute\n"
        )
        samples = found.memory_mib[:: max(1, len(found.memory_mib) // 20)]
        out.write(f"        on the way: {' '.join(f'{mib:.0f}' for mib in samples)}\n")
    grew = _grew(later, asked.seconds)
    if grew:
        out.write(f"        memory grew by more than {_GROWTH_RATIO:.0%}\n")
    for error in found.errors[:10]:
        out.write(f"  {error}\n")
    if found.said:
        out.write(f"the end of the server's log:\n{found.said}\n")
    return 1 if found.errors or found.held < asked.sessions or grew else 0


def _grew(later_mib: Sequence[float], seconds: float) -> bool:
    """Whether the last quarter of what is left holds more than the first, in a run that tells."""
    if seconds < _TELLING_S or len(later_mib) < 8:
        return False
    part = len(later_mib) // 4
    first, last = np.median(later_mib[:part]), np.median(later_mib[-part:])
    return bool(last > (1 + _GROWTH_RATIO) * first)


if __name__ == "__main__":
    raise SystemExit(main())
