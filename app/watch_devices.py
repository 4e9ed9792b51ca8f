"""Sampling the devices of this node into the lake, live."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from steptax.app.errors import UserError
from steptax.app.lake import Lake
from steptax.connectors.devices.nvml import live_batch
from steptax.connectors.devices.nvml_reader import NvmlReader

#: A segment a second would cost readers more than it tells them.
FLUSH_S = 10.0
#: Samples held while the lake cannot be written: an hour of 8 devices, about 30 MB.
HELD = 8 * 3600


@dataclass(frozen=True)
class DevicesTold:
    """What a sample or a flush has to say: rows stored, or why not, and news of the devices."""

    source: str
    rows: int = 0
    held: int = 0
    fault: str | None = None
    notes: tuple[str, ...] = ()


def nvml_library() -> Any:
    """The module ``pynvml`` (nvidia-ml-py), which loads the driver's library when it is used."""
    try:
        import pynvml
    except ImportError as error:
        raise UserError(
            f"nvidia-ml-py is not there: {error}",
            where="watch nvml",
            hint="install it: pip install nvidia-ml-py",
        ) from None
    return pynvml


class DeviceWatch:
    """Takes samples, holds them for some seconds and appends them as one live segment.

    ``nvml`` is ``nvml_library()`` or what answers like it; ``clock_us`` gives microseconds since
    1970 UTC and ``tick_s`` seconds that never go back.
    """

    def __init__(
        self,
        lake: Lake,
        nvml: Any,
        host: str,
        *,
        record: Path | None = None,
        flush_s: float = FLUSH_S,
        held: int = HELD,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        tick_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host = host
        self._lake = lake
        self._reader = NvmlReader(nvml, host, clock_us)
        self._record = record
        self._flush_s = flush_s
        self._most = held
        self._tick_s = tick_s
        self._flushed_s = tick_s()
        self._held: list[dict[str, Any]] = []
        self._first: list[dict[str, Any]] | None = None
        self._said: dict[str, None] = {}
        self._health: dict[int, str | None] = {}
        self._last_us = 0

    @property
    def source(self) -> str:
        """How rows name where they come from."""
        return f"nvml:{self.host}"

    @property
    def devices(self) -> int:
        """Devices of the first sample."""
        return len(self._first or [])

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold this node: UserError where another watch of it writes to this lake."""
        folder = self._lake.root / "watch"
        folder.mkdir(parents=True, exist_ok=True)
        name = "".join(c if c.isalnum() or c in "-." else "_" for c in self.host)
        with (folder / f"nvml-{name}.lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(
                    "another watch of this node's devices is at work",
                    where=self.host,
                    hint="stop it first, or leave it to it",
                ) from None
            try:
                yield
            finally:
                self._reader.close()

    def begin(self) -> None:
        """Take the first sample; UserError where there is no driver or no device."""
        self._first = self._reader.sample()
        if not self._first:
            why = self._reader.no_driver
            raise UserError(
                f"NVML does not answer: {why}" if why else "this node has no NVIDIA device",
                where="watch nvml",
                hint="run it on a node with an NVIDIA driver; nvidia-smi must work there",
            )

    def sample(self, *, last: bool = False) -> Iterator[DevicesTold]:
        """Take a sample; store what is held when it is time, or when this is the ``last``."""
        found, self._first = self._first or self._reader.sample(), []
        # The key of a sample is its moment: a clock that was set back must not repeat one.
        found = [one for one in found if one["ts_us"] > self._last_us]
        if found:
            self._last_us = found[0]["ts_us"]
        self._held += found
        dropped = max(0, len(self._held) - self._most)
        del self._held[:dropped]
        notes = [*self._news(found)]
        if dropped:
            notes.append(f"{dropped:,} oldest samples are lost: the lake could not be written")
        fault = self._keep(found)
        if notes or fault:
            yield DevicesTold(self.source, 0, len(self._held), fault, tuple(notes))
        if last or self._tick_s() - self._flushed_s >= self._flush_s:
            yield from self.flush()

    def flush(self) -> Iterator[DevicesTold]:
        """Append what is held; it stays held, to be tried again, where that fails."""
        self._flushed_s = self._tick_s()
        if not self._held:
            return
        batch = live_batch(self._held)
        try:
            self._lake.append(batch.table, batch.rows, source=self.source)
        except OSError as error:
            yield DevicesTold(self.source, 0, len(self._held), str(error))
            return
        self._held = []
        fresh = tuple(note for note in batch.notes if note not in self._said)
        self._said.update(dict.fromkeys(fresh))
        yield DevicesTold(self.source, batch.rows.num_rows, notes=fresh)

    def _news(self, found: list[dict[str, Any]]) -> Iterator[str]:
        """Devices that went away or came back."""
        for one in found:
            index, now = one["index"], one.get("down")
            before = self._health.get(index)
            if now != before:
                name = one["uuid"] or f"index {index}"
                yield f"device {name}: {now}" if now else f"device {name}: answers again"
            self._health[index] = now

    def _keep(self, found: list[dict[str, Any]]) -> str | None:
        """Add to the recording; the reason where it cannot be written."""
        if self._record is None or not found:
            return None
        try:
            with self._record.open("ab") as file:
                file.write(b"".join(orjson.dumps(one) + b"\n" for one in found))
        except OSError as error:
            return f"the recording: {error}"
        return None
