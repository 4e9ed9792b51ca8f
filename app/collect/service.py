"""All parts of a collector, from its start to its end."""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from steptax.app.collect.beats import Beats
from steptax.app.collect.commits import CommitStore
from steptax.app.collect.committer import Committer
from steptax.app.collect.server import Collector
from steptax.app.errors import UserError
from steptax.app.lake import Lake
from steptax.app.lake.compact import compact
from steptax.app.secret_files import read_secret_file

logger = logging.getLogger("steptax.collect")

COMPACT_S = 60.0


def read_tokens(path: Path) -> list[str]:
    """Tokens of a file, one a line, so that a new one can be brought in before the old one goes.

    Lines that begin with # are comments. Raises UserError when it holds none, or when others can
    read it.
    """
    lines = [line.strip() for line in read_secret_file(path).splitlines()]
    tokens = [line for line in lines if line and not line.startswith("#")]
    if not tokens or not all(map(is_token, tokens)):
        raise UserError(
            "expected a token in a line, of printable ASCII without spaces",
            where=f"--token-file {path}",
            hint="for example: openssl rand -hex 32 > token; chmod 600 token",
        )
    return tokens


def is_token(text: str) -> bool:
    """True when a header can carry ``text`` as a token."""
    return bool(text) and all("!" <= character <= "~" for character in text)


def _warm() -> None:
    """Import pandas, as Arrow does with its first array, before the first batch waits for it."""
    pa.array([0])


class Service:
    """A collector on ``lake``; raises UserError or OSError when it cannot begin."""

    def __init__(
        self,
        lake: Lake,
        host: str,
        port: int,
        *,
        tokens: Sequence[str],
        tls: ssl.SSLContext | None = None,
        compact_s: float = COMPACT_S,
    ) -> None:
        self._lake = lake
        self._store = CommitStore(lake)
        self._committer = Committer(self._store)
        self._beats = Beats(lake.root)
        self._compact_s = compact_s
        self._stop = threading.Event()
        try:
            self.server = Collector(
                (host, port), self._committer, self._beats, tokens=tokens, tls=tls
            )
        except OSError as error:
            self._store.close()
            raise UserError(
                f"cannot listen: {error.strerror or error}",
                where=f"--host {host} --port {port}",
                hint="name another with --port, or stop what listens there",
            ) from None
        except BaseException:
            self._store.close()
            raise
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'http' if tls is None else 'https'}://{shown}:{self.server.server_port}"

    def serve(self, on_ready: Callable[[], None]) -> None:
        """Listen until ``stop``, or until an exception such as KeyboardInterrupt."""
        self._committer.start()
        self._beats.start()
        compactor = threading.Thread(target=self._compact, name="compactor", daemon=True)
        compactor.start()
        threading.Thread(target=_warm, name="warm", daemon=True).start()
        try:
            on_ready()
            self.server.serve_forever(poll_interval=0.2)
        finally:
            self._stop.set()
            self.server.server_close()
            self._committer.close()
            self._beats.close()
            self._store.close()

    def stop(self) -> None:
        """End ``serve``, from another thread."""
        self.server.shutdown()

    def _compact(self) -> None:
        while not self._stop.wait(self._compact_s):
            try:
                compact(self._lake)
            except Exception as error:  # the next pass may succeed; collecting goes on
                logger.warning("compaction failed: %s: %s", type(error).__name__, error)
