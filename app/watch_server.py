"""Following a server into the lake: its samples window by window, each once, over any outage."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from steptax.app.errors import InputError, UserError
from steptax.app.lake import Lake
from steptax.app.lake.ingest import fingerprint, ingest
from steptax.app.watch import Clock, Refused, Stored, Told, held, newest_of
from steptax.connectors.asking import shown
from steptax.connectors.base import Options
from steptax.connectors.registry import connector

#: A scrape is stored at the moment at which it began, up to its timeout later.
SETTLE_S = 15.0
#: What is taken of a server that was never followed before.
FIRST_S = 3600.0
_KINDS = ("prometheus",)


@dataclass
class ServerWatch:
    """Follows the server at ``url`` into ``lake``. ``clock`` gives seconds since 1970.

    Each window is a commit that says up to where it goes: what follows it is asked for next, also
    after an outage or a kill, so that nothing is left out and nothing told twice.
    """

    lake: Lake
    kind: str
    url: str
    options: Options
    clock: Clock = time.time
    _is_away: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """UserError for a kind that is not followed at an address."""
        if self.kind not in _KINDS:
            raise UserError(
                f"{self.kind} is not followed at an address",
                where=shown(self.url),
                hint=f"kinds that are: {', '.join(_KINDS)}; others are followed as files",
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

        A server that does not answer is told once, and asked again at the next look; with
        ``settled``, which is the only look, InputError.
        """
        newest = newest_of(self.lake, self._key)
        end_us = round((self.clock() - SETTLE_S) * 1000) * 1000
        start_us = end_us - round(FIRST_S * 1e6) if newest is None else newest["position"]["end_us"]
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
        except InputError as error:
            if settled:
                raise
            if not self._is_away:
                self._is_away = True
                yield Refused(Path(shown(self.url)), error)

    def _store(self, path: Path) -> Stored:
        end_us = int(path.stem.rpartition("-")[2]) * 1000
        detail = {
            "connector": self.kind,
            "version": self._reader.version,
            "options": dict(self._facts),
            "watch": {"key": self._key, "position": {"end_us": end_us}},
        }
        result = ingest(
            self.lake,
            self._reader.read(path, self.options),
            ingest_id=fingerprint([path], "watch", self.kind, self._reader.version, self._key),
            source=f"{self.kind}:{path.name}",
            detail=detail,
        )
        self._is_away = False
        return Stored(path, result, 0, max(0.0, self.clock() - end_us / 1e6))
