"""Following a server into the lake: its samples window by window, each once, over any outage."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from steptax.app.errors import InputError, UserError
from steptax.app.lake import Lake
from steptax.app.lake.ingest import fingerprint, ingest
from steptax.app.lake.unheard import Unheard, heard, note_unheard
from steptax.app.watch import Clock, Refused, Stored, Told, held, newest_of, not_stored
from steptax.connectors.asking import shown
from steptax.connectors.base import Options
from steptax.connectors.prometheus.api import NEVER_SCRAPED
from steptax.connectors.registry import connector

#: A scrape is stored at the moment at which it began, up to its timeout later.
SETTLE_S = 15.0
#: What is taken of a server that was never followed before.
FIRST_S = 3600.0
_AT_ADDRESS = ("prometheus", "dcgm", "node-exporter", "slurm")


@dataclass
class ServerWatch:
    """Follows the server at ``url`` into ``lake``. ``clock`` gives seconds since 1970.

    Each window is a commit that says up to where it goes: what follows it is asked for next, also
    after an outage or a kill, so that nothing is left out and nothing told twice. ``first_us`` is
    where a server begins that was never followed before: an hour ago where it is None.
    """

    kinds: ClassVar[tuple[str, ...]] = ("prometheus",)
    lake: Lake
    kind: str
    url: str
    options: Options
    clock: Clock = time.time
    first_us: int | None = None
    _noted: set[str] = field(default_factory=set, init=False)
    _scraped: bool = field(default=False, init=False)
    """Whether any sample of this server is stored: time before the first one is no gap."""
    _silent: str = field(default="", init=False)
    """Why the last look stored nothing, told once: the server is away, or the disk is full."""

    def __post_init__(self) -> None:
        """UserError for a kind that is not followed at an address."""
        if self.kind not in self.kinds:
            raise UserError(
                f"{self.kind} is not followed at an address",
                where=shown(self.url),
                hint=f"kinds that are: {', '.join(_AT_ADDRESS)}; others are followed as files",
            )
        self._reader = connector(self.kind)
        self._facts = sorted((k, str(v)) for k, v in asdict(self.options).items() if v)
        self._key = fingerprint([], "watch", self.kind, self.url, self._facts)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold this source: UserError where another watch of it is at work in this lake."""
        with held(self.lake, self._key, shown(self.url)):
            yield

    def look(self, *, settled: bool = False) -> Iterator[Stored | Refused | Told]:
        """Store what was sampled since the last look.

        A server that does not answer, or a lake that cannot be written, is told once and tried
        again at the next look; with ``settled``, which is the only look, InputError.
        """
        newest = newest_of(self.lake, self._key)
        end_us = round((self.clock() - SETTLE_S) * 1000) * 1000
        if newest is not None:
            start_us = newest["position"]["end_us"]
        elif self.first_us is not None:
            start_us = self.first_us
        else:
            start_us = end_us - round(FIRST_S * 1e6)
        # Watches of before did not note it: what they follow was scraped for long.
        self._scraped = newest is not None and newest["position"].get("scraped", True)
        if self.first_us is not None and newest is not None and not self._noted:
            text = "was followed before, so --from does not count: it goes on where it stopped"
            self._noted.add(text)
            yield Told(Path(shown(self.url)), (text,))
        if start_us >= end_us:
            return
        span = {"from": f"{start_us / 1e6:.3f}", "to": f"{end_us / 1e6:.3f}"}
        asked = replace(self.options, extra={**self.options.extra, **span})
        try:
            with tempfile.TemporaryDirectory(prefix="steptax-") as folder:
                for name, content in self._reader.pull(self.url, asked):
                    path = Path(folder) / name
                    path.write_bytes(content)
                    yield self._store(path)
                    path.unlink()
            heard(self.lake, self._key)
        except InputError as error:
            self._unheard(error)
            if settled:
                raise
            yield from self._told(error)
        except OSError as error:
            fault = not_stored(self.lake, error)
            self._unheard(fault)
            if settled:
                raise fault from error
            yield from self._told(fault)

    def _unheard(self, error: InputError) -> None:
        found = Unheard(f"{self.kind}:{shown(self.url)}", round(self.clock() * 1e6), str(error))
        note_unheard(self.lake, self._key, found)

    def _told(self, error: InputError) -> Iterator[Refused]:
        if self._silent != error.message:
            self._silent = error.message
            yield Refused(Path(shown(self.url)), error, waits=True)

    def _store(self, path: Path) -> Stored:
        end_us = int(path.stem.rpartition("-")[2]) * 1000
        options = self.options
        if not self._scraped:
            options = replace(options, extra={**options.extra, NEVER_SCRAPED: "yes"})
        batches = list(self._reader.read(path, options))
        self._scraped = self._scraped or any(batch.rows.num_rows for batch in batches)
        position = {"end_us": end_us, "scraped": self._scraped}
        detail = {
            "connector": self.kind,
            "version": self._reader.version,
            "options": dict(self._facts),
            "address": shown(self.url),
            "watch": {"key": self._key, "position": position},
        }
        result = ingest(
            self.lake,
            batches,
            ingest_id=fingerprint([path], "watch", self.kind, self._reader.version, self._key),
            source=f"{self.kind}:{path.name}",
            detail=detail,
        )
        self._silent = ""
        return Stored(path, result, 0, max(0.0, self.clock() - end_us / 1e6))
