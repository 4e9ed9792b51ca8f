"""``steptax watch``: follow a growing file, or a folder, into the lake."""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import orjson
import typer

from steptax.app.commands.ingest import mapping_of
from steptax.app.commands.options import JsonFlag, LakeFlag, open_lake
from steptax.app.commands.output import console
from steptax.app.errors import NotFoundError, UserError
from steptax.app.ingest import url_of
from steptax.app.lake import Lake
from steptax.app.watch import Refused, Stored, Told, Watch
from steptax.app.watch_devices import DevicesTold, DeviceWatch, nvml_library
from steptax.app.watch_server import ServerWatch
from steptax.connectors.base import Options

#: How soon a request to stop is seen.
_NAP_S = 0.1


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("watch")(watch_command)


def watch_command(
    kind: Annotated[str, typer.Argument(help="what it is: steptax connectors lists the kinds")],
    source: Annotated[
        Path | None,
        typer.Argument(
            help="a file that grows, a folder, an address (prometheus); none: this node (nvml)"
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="take what is there, and leave")] = False,
    interval: Annotated[
        float | None,
        typer.Option("--interval", min=0.05, help="seconds between two looks: 5; of nvml: 1"),
    ] = None,
    match: Annotated[
        str, typer.Option("--match", metavar="PATTERN", help="files of a folder, by name")
    ] = "*",
    job: Annotated[str | None, typer.Option("--job", help="job id; else the file's name")] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OURS=THEIRS", help="column mapping; repeatable"),
    ] = None,
    time_unit: Annotated[
        str | None, typer.Option("--time-unit", help="ns, us, ms, s or relative")
    ] = None,
    meta: Annotated[Path | None, typer.Option("--meta", help="sizes of the job, YAML")] = None,
    attempt: Annotated[int, typer.Option("--attempt", min=0, help="attempt of the job")] = 0,
    world_size: Annotated[
        int | None, typer.Option("--world-size", min=1, help="ranks, where the file has fewer")
    ] = None,
    gpu_model: Annotated[str | None, typer.Option("--gpu-model", help="device of the job")] = None,
    dialect: Annotated[
        str | None, typer.Option("--dialect", help="dialect of a log; else it is detected")
    ] = None,
    loss_tag: Annotated[
        str | None,
        typer.Option("--loss-tag", metavar="TAG", help="training loss of a tracker; else detected"),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="node of device samples; else its own name")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="keep raw readings of nvml in this file, too")
    ] = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Keep storing what a file or a folder gains, until Ctrl-C; every row exactly once.

    What was stored, and how far, become visible together: a watch that is killed and started again
    goes on where the last one stopped.
    """
    options = Options(
        job_id=job,
        attempt=attempt,
        mapping=mapping_of(mapping or []),
        time_unit=time_unit,
        meta=meta,
        world_size=world_size,
        gpu_model=gpu_model,
        extra={
            name: value
            for name, value in (("dialect", dialect), ("loss_tag", loss_tag), ("host", host))
            if value is not None
        },
    )
    if source is None:
        _this_node(
            kind,
            open_lake(lake, create=True),
            host=host,
            interval_s=interval or 1.0,
            record=record,
            once=once,
            as_json=as_json,
        )
        return
    watch: Watch | ServerWatch
    if (url := url_of(source)) is not None:
        watch = ServerWatch(open_lake(lake, create=True), kind, url, options)
    else:
        if once and not source.exists():
            raise NotFoundError("there is no such file", where=str(source), hint="check the path")
        watch = Watch(open_lake(lake, create=True), kind, source, options, match=match)
    teller = _Teller(as_json=as_json)
    stop = _Stop()
    with watch.alone():
        if not once:
            teller.say(f"watching {url or source} (Ctrl-C stops)")
        while True:
            news = False
            for found in watch.look(settled=once):
                news = True
                teller.tell(found)
                if stop.asked:
                    break
            if once or stop.asked:
                break
            if not news:
                teller.idle()
            stop.wait(interval or 5.0)
            if stop.asked:
                break
    teller.leave(once=once)


def _this_node(
    kind: str,
    lake: Lake,
    *,
    host: str | None,
    interval_s: float,
    record: Path | None,
    once: bool,
    as_json: bool,
) -> None:
    """Sample the devices of this node until Ctrl-C."""
    if kind != "nvml":
        raise UserError(
            f"expected what to follow: {kind} is not read from the node itself",
            where="SOURCE",
            hint="name a file or a folder; steptax watch nvml needs none",
        )
    teller, stop = _Teller(as_json=as_json), _Stop()
    watch = DeviceWatch(lake, nvml_library(), host or socket.gethostname(), record=record)
    with watch.alone():
        watch.begin()
        teller.say(f"sampling {watch.devices} devices of {watch.host} (Ctrl-C stops)")
        due_s = time.monotonic()
        while True:
            for told in watch.sample(last=once):
                teller.devices(told)
            due_s = max(due_s + interval_s, time.monotonic())
            stop.wait(0.0 if once else due_s - time.monotonic())
            if once or stop.asked:
                break
        for told in watch.flush():
            teller.devices(told)
    teller.leave(once=once)


class _Stop:
    """Set by Ctrl-C or a request to terminate, so that a commit in the making is finished.

    A plain flag: whatever has a lock could be held by the very code that the signal interrupts.
    """

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGINT, self._ask)
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True

    def wait(self, seconds: float) -> None:
        """Wait, but no longer than until it is asked."""
        until = time.monotonic() + seconds
        while not self.asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _NAP_S))


class _Teller:
    """Prints one line per commit: for people, or JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._total: Counter[str] = Counter()
        self._rejected = 0
        self._commits = 0
        self._idle = False
        self._spoken = False

    def tell(self, found: Stored | Refused | Told) -> None:
        """Say what was stored, or why a file was not."""
        self._idle = False
        if isinstance(found, Told):
            self._json(
                {
                    "ok": True,
                    "data": {"commit": None, "source": str(found.path), "accepted": {}},
                    "warnings": list(found.notes),
                }
            )
            for note in found.notes:
                self.say(f"{found.path.name}: {note}")
            return
        if isinstance(found, Refused):
            error = found.error
            body = {
                "kind": error.kind,
                "message": error.message,
                "where": error.where,
                "hint": error.hint,
            }
            self._json({"ok": False, "error": body})
            self.say(f"{found.path.name}: not read: {error.message}")
            return
        result = found.result
        rejected = sum(result.rejected.values())
        self._total.update(result.accepted)
        self._rejected += rejected
        self._commits += 1
        notes = [*found.notes, *result.notes]
        self._json(
            {
                "ok": True,
                "data": {
                    "commit": result.ingest_id,
                    "source": str(found.path),
                    "accepted": result.accepted,
                    "rejected": result.rejected,
                    "stored_before": result.stored_before,
                    "total": dict(self._total),
                    "rejects": list(result.first_rejects),
                    "job_ids": list(result.job_ids),
                    "lag_s": round(found.lag_s, 3),
                    "behind_bytes": found.behind_bytes,
                },
                "warnings": notes,
            }
        )
        gained = ", ".join(f"{name} +{count:,}" for name, count in result.accepted.items() if count)
        parts = [f"{found.path.name}: {gained or 'nothing new'}"]
        if rejected:
            parts.append(f"{rejected:,} rejected")
        before = sum(result.stored_before.values())
        if before:
            parts.append(f"{before:,} stored before")
        parts.append(f"lag {found.lag_s:.1f} s")
        if found.behind_bytes:
            parts.append(f"{found.behind_bytes:,} bytes to read")
        self.say(", ".join(parts))
        for note in notes:
            self.say(f"note: {note}")

    def devices(self, told: DevicesTold) -> None:
        """Say what was stored of this node's devices, and what is wrong with them."""
        self._idle = False
        self._total.update({"device_samples": told.rows})
        self._commits += bool(told.rows)
        self._json(
            {
                "ok": told.fault is None,
                "data": {
                    "commit": None,
                    "source": told.source,
                    "accepted": {"device_samples": told.rows},
                    "held": told.held,
                    "total": dict(self._total),
                },
                "warnings": list(told.notes),
            }
            if told.fault is None
            else {
                "ok": False,
                "error": {
                    "kind": "input",
                    "message": told.fault,
                    "where": told.source,
                    "hint": f"{told.held:,} samples are held and tried again",
                },
            }
        )
        if told.fault is not None:
            self.say(f"not stored: {told.fault}; {told.held:,} samples are held")
        elif told.rows:
            self.say(f"{told.source}: device_samples +{told.rows:,}")
        for note in told.notes:
            self.say(f"note: {note}")

    def idle(self) -> None:
        """Say once that there is nothing new."""
        if not self._idle:
            self.say("nothing new; waiting")
        self._idle = True

    def leave(self, *, once: bool) -> None:
        """The last line: what was stored in all."""
        total = ", ".join(f"{count:,} {name}" for name, count in self._total.items() if count)
        self.say(f"stored {total or 'nothing'} in {self._commits:,} commits")
        if once and not self._spoken:
            nothing: dict[str, Any] = {"commit": None, "accepted": {}, "rejected": {}, "total": {}}
            self._json({"ok": True, "data": nothing, "warnings": []})

    def say(self, text: str) -> None:
        """Print for people."""
        if not self._as_json:
            console.print(f"{datetime.now():%H:%M:%S}  {text}", markup=False)

    def _json(self, body: dict[str, Any]) -> None:
        self._spoken = True
        if self._as_json:
            sys.stdout.write(orjson.dumps(body).decode() + "\n")
            sys.stdout.flush()
