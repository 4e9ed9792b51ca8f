"""Tabs without a login: the oldest makes room, none stays for ever, none sends much."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from steptax.app.strangers import Strangers
from tests.patience import PATIENCE_S

SCOPE: Scope = {"type": "websocket", "path": "/_stcore/stream"}


class Tab:
    """One websocket: what it sends is put into ``sends``, what it gets is in ``got``."""

    def __init__(self, strangers: Strangers) -> None:
        self.sends: asyncio.Queue[Message] = asyncio.Queue()
        self.got: list[Message] = []
        self.heard: list[Message] = []
        self.sends.put_nowait({"type": "websocket.connect"})
        self.task = asyncio.create_task(
            strangers.serve(self._page, SCOPE, self.sends.get, self._take)
        )

    async def _take(self, message: Message) -> None:
        self.got.append(message)

    async def _page(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Takes what comes and answers each, as the pages do."""
        while True:
            message = await receive()
            self.heard.append(message)
            kind = "accept" if message["type"] == "websocket.connect" else "send"
            await send({"type": f"websocket.{kind}"})
            if message["type"] == "websocket.disconnect":
                return

    def send(self, raw: bytes) -> None:
        self.sends.put_nowait({"type": "websocket.receive", "bytes": raw})

    @property
    def closed(self) -> int | None:
        """The code with which it was closed; None while it is open."""
        codes = [one["code"] for one in self.got if one["type"] == "websocket.close"]
        assert not codes or self.got[-1]["type"] == "websocket.close"  # nothing follows it
        return codes[0] if codes else None


def run(test: Callable[[], Awaitable[Any]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), PATIENCE_S)

    asyncio.run(bounded())


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_one_tab_too_many_closes_the_oldest_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        strangers = Strangers(tabs=3)
        tabs = []
        for _ in range(5):
            tabs.append(Tab(strangers))
            await settled()
        assert [tab.closed for tab in tabs] == [1008, 1008, None, None, None]
        assert [tab.task.done() for tab in tabs] == [True, True, False, False, False]
        tabs[2].sends.put_nowait({"type": "websocket.disconnect", "code": 1001})
        await tabs[2].task
        tabs.append(Tab(strangers))  # its place is free
        for tab in tabs[3:]:
            tab.send(b"hello")
        await settled()
        for tab in tabs[3:]:
            assert tab.heard[-1]["bytes"] == b"hello"
            assert tab.closed is None
            tab.task.cancel()

    run(test)
    assert [r.message for r in caplog.records] == [
        "more than 3 tabs without a login are open: the oldest are closed"
    ]


def test_many_at_the_same_moment_are_bounded_too() -> None:
    async def test() -> None:
        strangers = Strangers(tabs=3)
        tabs = [Tab(strangers) for _ in range(10)]
        await settled()
        assert [tab.closed for tab in tabs] == [1008] * 7 + [None] * 3
        for tab in tabs:
            tab.task.cancel()

    run(test)


@pytest.mark.parametrize("kind", ["bytes", "text"])
def test_a_long_message_closes_its_tab_unread(kind: str) -> None:
    async def test() -> None:
        tab = Tab(Strangers(message_bytes=10))
        for size in (10, 11):
            body = b"x" * size if kind == "bytes" else "x" * size
            tab.sends.put_nowait({"type": "websocket.receive", kind: body})
        await tab.task
        assert [len(one.get(kind, "")) for one in tab.heard] == [0, 10, 0]
        assert tab.heard[-1] == {"type": "websocket.disconnect", "code": 1009}
        assert tab.closed == 1009

    run(test)


def test_none_stays_for_ever() -> None:
    async def test() -> None:
        tab = Tab(Strangers(open_s=0.05))
        await tab.task
        assert tab.closed == 1008

    run(test)
