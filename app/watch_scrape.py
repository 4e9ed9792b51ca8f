"""Following an exporter into the lake: a scrape at each look, of the moment at which it was made.

An exporter keeps nothing: what it would have said while it, or the network to it, or this watch was
away is lost. It is never made up for; the pages show the stretch as one without samples.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from steptax.app.errors import InputError
from steptax.app.lake.ingest import fingerprint, ingest
from steptax.app.lake.unheard import heard
from steptax.app.watch import Refused, Stored, Told, not_stored
from steptax.app.watch_server import ServerWatch
from steptax.connectors.asking import shown

SCRAPED = ("dcgm", "node-exporter")


class ScrapeWatch(ServerWatch):
    """Scrapes the exporter at ``url`` into ``lake``."""

    kinds = SCRAPED

    def look(self, *, settled: bool = False) -> Iterator[Stored | Refused | Told]:
        """Scrape and store; what goes wrong is told once, and tried again at the next look.

        With ``settled``, which is the only look, InputError.
        """
        at_s = round(self.clock(), 3)
        asked = replace(self.options, extra={**self.options.extra, "at": f"{at_s:.3f}"})
        try:
            [(name, content)] = self._reader.pull(self.url, asked)
            with tempfile.TemporaryDirectory(prefix="steptax-") as folder:
                path = Path(folder) / name
                path.write_bytes(content)
                identity = fingerprint([path], "scrape", self.kind, self._key, at_s)
                result = ingest(
                    self.lake,
                    self._reader.read(path, asked),
                    ingest_id=identity,
                    source=f"{self.kind}:{name}",
                    detail={
                        "connector": self.kind,
                        "version": self._reader.version,
                        "options": dict(self._facts),
                        "address": shown(self.url),
                    },
                )
        except (InputError, OSError) as error:
            fault = error if isinstance(error, InputError) else not_stored(self.lake, error)
            self._unheard(fault)
            if settled:
                raise fault from error
            yield from self._told(fault)
            return
        heard(self.lake, self._key)
        self._silent = ""
        fresh = tuple(note for note in result.notes if note not in self._noted)
        self._noted.update(fresh)
        yield Stored(Path(name), replace(result, notes=fresh), 0, max(0.0, self.clock() - at_s))
