"""A browser tab on the live page of a job, and what is seen of it and of what stands behind it."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field

from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection

from steptax.benchmarks.product.collector_node import JOB
from steptax.benchmarks.product.sessions import ask, connected

#: What the page says of the newest step, and the head of it of its window.
_NEWEST = re.compile(r"^Step ([\d,]+) ended")
_WINDOW = re.compile(r"steps [\d,]+ to ([\d,]+)")


@dataclass
class Seen:
    """When things were seen, in seconds since 1970."""

    first_answer_s: float | None = None
    """What the first reader of the server waited, before the job began."""
    ended: dict[int, float] = field(default_factory=dict)
    """By step: when its last rank ended it."""
    readable: dict[int, float] = field(default_factory=dict)
    newest: list[tuple[float, float, int]] = field(default_factory=list)
    """Of each answer with a newest step: asked for, arrived, the step."""
    windows: list[tuple[float, float, int]] = field(default_factory=list)
    """Of each answer with a window: asked for, arrived, its last step."""
    took_s: list[float] = field(default_factory=list)
    """What each answer took, whatever is in it."""
    errors: list[str] = field(default_factory=list)
    server_mib: list[float] = field(default_factory=list)
    collector_mib: list[float] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)

    def on_page(self) -> dict[int, float]:
        """By step: when the first answer that tells it, or a later one, as the newest arrived."""
        found: dict[int, float] = {}
        for step in self.readable:
            arrived = [arrived_s for _, arrived_s, told in self.newest if told >= step]
            if arrived:
                found[step] = min(arrived)
        return found

    def in_figures(self) -> dict[int, float]:
        """By step: when the first answer whose window holds it arrived, asked when readable."""
        found: dict[int, float] = {}
        for step, readable_s in self.readable.items():
            for asked_s, arrived_s, last in self.windows:
                if asked_s >= readable_s and last >= step:
                    found[step] = arrived_s
                    break
        return found


async def _watch_page(url: str, until_s: float, seen: Seen) -> None:
    """One browser tab on the live page of the job; each part refreshed as often as it is told."""
    shown: dict[str, int] = {}
    alerts: list[str] = []
    is_whole = False

    def read(message: ForwardMsg) -> None:
        nonlocal is_whole
        if message.WhichOneof("type") != "delta":
            is_whole |= message.WhichOneof("type") == "navigation"
            return
        element = message.delta.new_element
        if element.WhichOneof("type") == "exception":
            seen.errors.append(element.exception.message[:200])
        elif element.WhichOneof("type") == "alert":
            alerts.append(element.alert.body)
        elif element.WhichOneof("type") == "markdown":
            for name, words in (("newest", _NEWEST), ("window", _WINDOW)):
                if found := words.search(element.markdown.body):
                    shown[name] = int(found[1].replace(",", ""))

    async def look(socket: ClientConnection, fragment: str | None) -> dict[str, float]:
        nonlocal is_whole
        is_whole = False
        shown.clear()
        alerts.clear()
        asked_s = time.time()
        told = await ask(socket, "job", JOB, fragment, read)
        arrived_s = time.time()
        seen.took_s.append(arrived_s - asked_s)
        for name, answers in (("newest", seen.newest), ("window", seen.windows)):
            if name in shown:
                answers.append((asked_s, arrived_s, shown[name]))
        return told

    socket: ClientConnection
    async with connected(url) as socket:
        due_s: dict[str, float] = {}
        periods_s: dict[str, float] = {}
        fragment: str | None = None
        while time.monotonic() < until_s:
            told = await look(socket, fragment)
            now_s = time.monotonic()
            if is_whole:  # with parts of other names
                periods_s = told
                due_s = {name: now_s + period_s for name, period_s in told.items()}
            elif fragment in due_s:
                due_s[fragment] = max(due_s[fragment] + periods_s[fragment], now_s)
            if not due_s:
                said = "; ".join(alerts)
                raise RuntimeError(f"the page draws itself anew no more; it says: {said[:300]}")
            fragment = min(due_s, key=due_s.__getitem__)
            await asyncio.sleep(max(0.0, min(due_s[fragment], until_s) - now_s))


async def _watch_all(url: str, viewers: int, until_s: float, seen: Seen) -> None:
    async def one() -> None:
        while time.monotonic() < until_s:
            try:
                await _watch_page(url, until_s, seen)
            except Exception as error:  # counted; a reader would load the page anew
                seen.errors.append(f"{type(error).__name__}: {error}")
                await asyncio.sleep(2.0)

    await asyncio.gather(*(one() for _ in range(viewers)))


async def open_once(url: str) -> float:
    """Seconds that the first reader of a new server waits, who finds no job yet."""
    begin_s = time.monotonic()
    async with connected(url) as socket:
        await ask(socket, "job", JOB, None, lambda _: None)
    return time.monotonic() - begin_s


def view(url: str, viewers: int, until_s: float, seen: Seen) -> None:
    """Let so many tabs watch until ``until_s`` of the monotonic clock."""
    asyncio.run(_watch_all(url, viewers, until_s, seen))
