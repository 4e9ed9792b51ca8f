"""``steptax watch``: follow a growing file, a folder, a server or a node into the lake."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from steptax.app.commands.ingest import mapping_of
from steptax.app.commands.options import JsonFlag, LakeFlag, open_lake
from steptax.app.commands.source_flags import (
    AttemptFlag,
    DialectFlag,
    GpuModelFlag,
    HostFlag,
    JobFlag,
    LossTagFlag,
    MapFlag,
    MetaFlag,
    TimeUnitFlag,
    WorldSizeFlag,
)
from steptax.app.commands.watch_teller import Teller
from steptax.app.errors import NotFoundError, UserError
from steptax.app.ingest import url_of
from steptax.app.lake import Lake
from steptax.app.watch import Watch
from steptax.app.watch_devices import DeviceWatch, nvml_library
from steptax.app.watch_scrape import SCRAPED, ScrapeWatch
from steptax.app.watch_server import ServerWatch
from steptax.app.watch_slurm import KIND, SlurmWatch
from steptax.connectors.base import Options
from steptax.connectors.prometheus.moments import moment_of
from steptax.connectors.schedulers.accounting import Accounting, SacctCommand, SlurmServer
from steptax.connectors.schedulers.sacct import TIMEZONE, zone_of

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
            help="a file that grows, a folder, an address (prometheus, dcgm, node-exporter, "
            "slurm); none: this node (nvml), or what sacct says (slurm)"
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="take what is there, and leave")] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval",
            min=0.05,
            help="seconds between two looks: 5; of nvml: 1; of an address: 15; of slurm: 60",
        ),
    ] = None,
    match: Annotated[
        str, typer.Option("--match", metavar="PATTERN", help="files of a folder, by name")
    ] = "*",
    job: JobFlag = None,
    mapping: MapFlag = None,
    time_unit: TimeUnitFlag = None,
    meta: MetaFlag = None,
    attempt: AttemptFlag = 0,
    world_size: WorldSizeFlag = None,
    gpu_model: GpuModelFlag = None,
    dialect: DialectFlag = None,
    loss_tag: LossTagFlag = None,
    host: HostFlag = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone",
            metavar="ZONE",
            help="of local times: Europe/Berlin; slurm needs it only where sacct hides its offset",
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="where slurm and prometheus begin: -30d; -1d, -1h"
        ),
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
            for name, value in (
                ("dialect", dialect),
                ("loss_tag", loss_tag),
                ("host", host),
                ("timezone", timezone),
            )
            if value is not None
        },
    )
    if start is not None and (source is None or url_of(source) is None) and kind != KIND:
        raise _no_begin(kind)
    teller, stop = Teller(as_json=as_json), _Stop()
    watch: Watch | ServerWatch | SlurmWatch
    if kind == KIND:
        watch = _slurm(open_lake(lake, create=True), source, options, start, stop)
        _follow(watch, watch.accounting.where, teller, stop, once=once, interval_s=interval or 60.0)
        return
    if source is None:
        _this_node(
            kind,
            open_lake(lake, create=True),
            host=host,
            interval_s=interval or 1.0,
            record=record,
            once=once,
            teller=teller,
            stop=stop,
        )
        return
    if (url := url_of(source)) is not None:
        if start is not None and kind in SCRAPED:
            raise _no_begin(kind)
        follow = ScrapeWatch if kind in SCRAPED else ServerWatch
        first_us = None if start is None else moment_of(start, "--from")
        watch = follow(open_lake(lake, create=True), kind, url, options, first_us=first_us)
        interval = interval or 15.0  # as often as it is scraped where nobody says otherwise
    else:
        if not source.exists():
            if once:
                raise NotFoundError(
                    "there is no such file", where=str(source), hint="check the path"
                )
            teller.say(f"{source} is not there yet: it is read once it is")
        watch = Watch(open_lake(lake, create=True), kind, source, options, match=match)
    _follow(watch, url or str(source), teller, stop, once=once, interval_s=interval or 5.0)


def _no_begin(kind: str) -> UserError:
    return UserError(
        f"watch {kind} takes what comes, from its begin: it cannot begin at a time",
        where="--from",
        hint="leave --from out; only slurm and prometheus keep what was",
    )


def _follow(
    watch: Watch | ServerWatch | SlurmWatch,
    where: str,
    teller: Teller,
    stop: _Stop,
    *,
    once: bool,
    interval_s: float,
) -> None:
    """Look again and again, until Ctrl-C, and say what each look found."""
    with watch.alone():
        if not once:
            teller.say(f"watching {where} (Ctrl-C stops)")
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
            stop.wait(interval_s)
            if stop.asked:
                break
    teller.leave(once=once)


def _slurm(
    lake: Lake, source: Path | None, options: Options, start: str | None, stop: _Stop
) -> SlurmWatch:
    """The accounting at an address, else what the command ``sacct`` says of it."""
    zone = options.extra.get(TIMEZONE)
    zone_of(options)  # UserError for one that does not exist, before anything is asked
    accounting: Accounting
    if source is None:
        accounting = SacctCommand(zone=zone, stop=lambda: stop.asked)
    elif (url := url_of(source)) is not None:
        accounting = SlurmServer.at(url)
    else:
        raise UserError(
            f"{source} is no address",
            where="SOURCE",
            hint="leave it out to ask sacct, or name slurmrestd: http://HOST:6820; saved output is "
            "followed by: steptax watch sacct FOLDER",
        )
    first_us = None if start is None else moment_of(start, "--from")
    return SlurmWatch(lake, accounting, options, first_us)


def _this_node(
    kind: str,
    lake: Lake,
    *,
    host: str | None,
    interval_s: float,
    record: Path | None,
    once: bool,
    teller: Teller,
    stop: _Stop,
) -> None:
    """Sample the devices of this node until Ctrl-C."""
    if kind != "nvml":
        raise UserError(
            f"expected what to follow: {kind} is not read from the node itself",
            where="SOURCE",
            hint="name a file or a folder; steptax watch nvml needs none",
        )
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
