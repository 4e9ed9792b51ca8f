"""Tabs of people who are not logged in: few, small and for a while.

Each open tab costs the page server memory, and what it sends costs more until it is read. Somebody
who is logged in is known; a stranger on the network is not, and could otherwise take all of it. The
page that asks for the login needs next to nothing, so strangers get that much together, and who is
logged in waits for none of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("steptax.serve")

#: Open tabs of strangers together; one more closes the oldest, so a login stays possible.
TABS: Final = 128
#: Seconds after which a stranger's tab is closed. The browser opens it anew by itself.
OPEN_S: Final = 600.0
#: One message of a stranger; what the page with the login sends has fewer than a thousand bytes.
MESSAGE_BYTES: Final = 64 * 1024
#: Seconds between two lines of the log about the same flood.
TOLD_EVERY_S: Final = 60.0
#: Codes of RFC 6455, section 7.4.1.
_POLICY, _TOO_BIG = 1008, 1009


class Strangers:
    """Hands websockets of strangers on, within these bounds. For one event loop."""

    def __init__(
        self, *, tabs: int = TABS, open_s: float = OPEN_S, message_bytes: int = MESSAGE_BYTES
    ) -> None:
        self._tabs = tabs
        self._open_s = open_s
        self._message_bytes = message_bytes
        #: Each is done when its tab has to close; the oldest first.
        self._open: OrderedDict[asyncio.Future[int], None] = OrderedDict()
        self._told_s = float("-inf")

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run ``app`` for one of them, until it, the stranger or a bound ends it."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[int] = loop.create_future()
        self._make_room(loop.time())
        self._open[over] = None
        timer = loop.call_later(self._open_s, _end, over, _POLICY)

        is_begun = False

        async def heard() -> Message:
            nonlocal is_begun
            if not is_begun:  # that it wants to begin comes before anything can end it
                is_begun = True
                return await receive()
            coming = asyncio.ensure_future(receive())
            try:
                either: set[asyncio.Future[Any]] = {coming, over}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not over.done():
                    message = coming.result()
                    size = max(len(message.get(kind) or "") for kind in ("bytes", "text"))
                    if size <= self._message_bytes:
                        return message
                    over.set_result(_TOO_BIG)
            finally:
                coming.cancel()
            code = over.result()
            await send({"type": "websocket.close", "code": code})
            return {"type": "websocket.disconnect", "code": code}

        async def said(message: Message) -> None:
            if not over.done():  # nothing may follow the close
                await send(message)

        try:
            await app(scope, heard, said)
        finally:
            timer.cancel()
            self._open.pop(over, None)
            over.cancel()

    def _make_room(self, now_s: float) -> None:
        while len(self._open) >= self._tabs:
            oldest, _ = self._open.popitem(last=False)
            _end(oldest, _POLICY)
            if now_s - self._told_s >= TOLD_EVERY_S:
                self._told_s = now_s
                logger.warning(
                    "more than %d tabs without a login are open: the oldest are closed", self._tabs
                )


def _end(over: asyncio.Future[int], code: int) -> None:
    if not over.done():
        over.set_result(code)
