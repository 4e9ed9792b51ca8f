"""``steptax demo``."""

from __future__ import annotations

import contextlib
import os
import shlex
import threading
import time
import webbrowser
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import pyarrow as pa
import typer

from steptax.app.commands.options import JsonFlag, price_of
from steptax.app.commands.output import console, show
from steptax.app.commands.serving import (
    PortFlag,
    dashboard_at,
    environment_of,
    port_for,
    stop_on_terminate,
)
from steptax.app.demo.config import STRAGGLERS, DemoConfig
from steptax.app.demo.job import DemoJob
from steptax.app.errors import IntegrityError, NotFoundError, UserError
from steptax.app.first_run import demo_lake
from steptax.app.lake import Lake
from steptax.app.lake.compact import compact
from steptax.app.views.job.card_text import card_as_text
from steptax.app.views.job.first_steps import FIRST_STEPS
from steptax.app.views.job.view import job_view
from steptax.app.views.workspace import open_workspace

#: The demo pretends that each worker is one GPU at this list price, and says so.
DEMO_PRICE = Decimal("2.00")
STRAGGLER, WORKERS, BACKEND = "sequence", 8, "auto"
COMPACT_EVERY_S = 15.0
#: As on the page: before that the card cannot tell why a worker is slow.
CARD_AFTER_STEPS = FIRST_STEPS


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("demo")(demo_command)


def demo_command(
    company: Annotated[
        bool,
        typer.Option(
            "--company",
            help="train nothing: six weeks of a made-up company, for whoever pays or buys",
        ),
    ] = False,
    straggler: Annotated[
        str, typer.Option("--straggler", help=f"what slows one worker: {', '.join(STRAGGLERS)}")
    ] = STRAGGLER,
    workers: Annotated[int, typer.Option("--workers", min=2, max=64, help="processes")] = WORKERS,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="stop after so many; else until Ctrl-C")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="open the page")] = True,
    dashboard: Annotated[
        bool, typer.Option("--dashboard/--no-dashboard", help="serve the pages")
    ] = True,
    port: PortFlag = None,
    price: Annotated[
        str | None,
        typer.Option(
            "--price",
            metavar="USD",
            help=f"price per GPU-hour in USD; else {DEMO_PRICE}, as if each worker were one GPU",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="same seed, same data and culprit")] = 0,
    backend: Annotated[
        str, typer.Option("--backend", help="auto, numpy or torch (gloo)")
    ] = BACKEND,
    lake: Annotated[
        Path | None, typer.Option("--lake", help="where to keep it; else a folder of your own")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Train a small model for real on this machine, with one slow worker, and watch it live.

    With --company: write six weeks of a made-up company (synthetic, and labelled so) and open the
    pages on them: what to fix first and what it is worth, the fleet, the bill, what to buy.
    """
    if company:
        _refuse_training(straggler, workers, steps, backend)
        from steptax.app.commands.company import show_company

        show_company(
            lake,
            seed=seed,
            price=price_of(price),
            dashboard=dashboard,
            browser=browser,
            port=port,
            as_json=as_json,
        )
        return
    root = lake if lake is not None else demo_lake()
    Lake(root, create=True)
    # Seconds keep apart what is started one after the other; the process id what is not.
    job_id = f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}"
    config = DemoConfig(
        lake=root,
        job_id=job_id,
        workers=workers,
        straggler=straggler,
        steps=steps,
        seed=seed,
        backend=backend,
    )
    cost = price_of(price)
    note = "you set it"
    if cost is None:
        cost, note = DEMO_PRICE, "set by the demo, as if each worker were one GPU"
    job = DemoJob(config)
    with contextlib.ExitStack() as stack:
        stop_on_terminate()
        stack.enter_context(_compacting(root))
        job.start()
        stack.callback(job.stop)
        if not as_json:
            console.print(
                f"Training with {workers} workers; worker {config.straggler_rank} is slow by "
                f"{straggler}."
                if straggler != "none"
                else f"Training with {workers} workers."
            )
        if dashboard:
            environment = environment_of(root, cost, note)
            here = "127.0.0.1"
            used = port_for(port, here, quiet=as_json)
            _, base = stack.enter_context(dashboard_at(here, used, environment))
            url = f"{base}/job?{urlencode({'job': job_id})}"
            if not as_json:
                console.print(f"Steptax is at {url} (Ctrl-C stops everything)")
            if browser:
                webbrowser.open(url)
        with contextlib.suppress(KeyboardInterrupt):
            _watch(job, root, job_id, cost, note, quiet=as_json)
    _last_word(root, job_id, cost, note, as_json=as_json)


def _refuse_training(straggler: str, workers: int, steps: int | None, backend: str) -> None:
    """A company trains nothing: UserError for a flag that says how to train."""
    for flag, is_given in (
        ("--straggler", straggler != STRAGGLER),
        ("--workers", workers != WORKERS),
        ("--steps", steps is not None),
        ("--backend", backend != BACKEND),
    ):
        if is_given:
            raise UserError(
                "the company's jobs are made up, and nothing is trained",
                where=flag,
                hint=f"leave out {flag}, or --company",
            )


def _watch(
    job: DemoJob, root: Path, job_id: str, price: Decimal, note: str, *, quiet: bool
) -> None:
    """Wait for the job; say once what the card says."""
    said, failed = quiet, False
    while not (state := job.poll()).finished:
        if state.failure and not failed:
            failed = True
            if not quiet:
                console.print(f"{state.failure}; the others wait for it, see the page")
        if not said:
            with contextlib.suppress(NotFoundError, IntegrityError):
                view = job_view(open_workspace(root), job_id, price=price, price_note=note)
                if view.coverage.steps_used >= CARD_AFTER_STEPS:
                    console.print(f"After {view.coverage.steps_used} steps, not the last word:")
                    console.print(card_as_text(view))
                    said = True
        time.sleep(1.0)
    if failed:
        # The rank that closes the job's record may be the one that died.
        rows = pa.table({"job_id": [job_id], "state": ["failed"]})
        Lake(root).append("jobs", rows, source="demo")


def _last_word(root: Path, job_id: str, price: Decimal, note: str, *, as_json: bool) -> None:
    try:
        view = job_view(open_workspace(root), job_id, price=price, price_note=note, last_steps=None)
    except NotFoundError:
        raise UserError(
            "the job was stopped before its first step was recorded",
            where=job_id,
            hint="let it run for a few seconds",
        ) from None
    data = {"job_id": job_id, "lake": str(root), "card": view.card, "metrics": view.metrics}

    def text() -> None:
        console.print("In the end:")
        console.print(card_as_text(view))
        console.print(
            f"Kept in {root}; steptax serve --lake {shlex.quote(str(root))} shows it again."
        )

    show(data, as_json=as_json, text=text)


@contextlib.contextmanager
def _compacting(root: Path) -> Iterator[None]:
    """Merge the recorder's small segments now and then, so that pages stay quick."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(COMPACT_EVERY_S):
            compact(Lake(root), grace_s=60)

    thread = threading.Thread(target=work, name="compactor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=10)
