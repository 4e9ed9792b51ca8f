"""``steptax demo --company``: a made-up company in a lake, and the pages on it."""

from __future__ import annotations

import contextlib
import getpass
import shlex
import tempfile
import time
import webbrowser
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlencode

from steptax.app.commands.output import console, print_note, show
from steptax.app.commands.serving import (
    dashboard_at,
    environment_of,
    port_for,
    stop_on_terminate,
    watch_over,
)
from steptax.app.demo.company import PRICE, SOURCE, Company, make_company
from steptax.app.format import format_moment, format_usd

_HOST = "127.0.0.1"
_MINUTE_US = 60_000_000


def show_company(
    lake: Path | None,
    *,
    seed: int,
    price: Decimal | None,
    dashboard: bool,
    browser: bool,
    port: int | None,
    as_json: bool,
) -> None:
    """Write the company into ``lake`` unless it is there, say what to look at, serve the pages.

    ``price`` is what the company pays per GPU-hour in USD. Raises UserError for a lake that holds
    anything else.
    """
    root = lake if lake is not None else _own_folder()
    now_us = time.time_ns() // 1000
    company = make_company(
        root,
        until_us=now_us - now_us % _MINUTE_US,
        seed=seed,
        usd_per_gpu_hour=PRICE if price is None else price,
    )
    show(
        {"lake": str(root), "source": SOURCE, "company": company},
        as_json=as_json,
        text=lambda: _tell(root, company, price),
    )
    if not dashboard:
        return
    stop_on_terminate()
    environment = environment_of(root, None, None)  # its bill prices every hour
    with (
        contextlib.suppress(KeyboardInterrupt),
        dashboard_at(_HOST, port_for(port, _HOST, quiet=as_json), environment) as (process, url),
    ):
        if not as_json:
            console.print(f"Steptax is at {url} (Ctrl-C stops it)")
            for reader, what, path in _tour(company):
                console.print(f"  {reader}: {what}\n    {url}/{path}")
        if browser:
            webbrowser.open(url)
        watch_over(process, url)


def _tell(root: Path, company: Company, price: Decimal | None) -> None:
    """What lies in the lake, and that none of it was measured."""
    until = format_moment(company.until_us)[:16]
    kept = f"steptax demo --company --lake {shlex.quote(str(root))}"
    if company.was_there:
        console.print(f"The synthetic company of {root}, as it was made, is shown again.")
    console.print(
        f"Synthetic: six weeks of a made-up company up to {until} UTC, {company.jobs} jobs on 16 "
        f"nodes of 8 H100 at ${company.usd_per_gpu_hour} per GPU-hour, "
        f"{company.step_rows:,} steps of ranks. Nothing of it was measured."
    )
    worst = company.worst
    cost = worst.lost_gpu_hours * float(company.usd_per_gpu_hour)
    console.print(
        f"Planted in it, among other faults: rank {worst.rank} of {worst.job_id} on {worst.host} "
        f"is slow, which cost {format_usd(cost)}. Hold the pages against that."
    )
    console.print(f"Kept in {root}; {kept} shows it again.")
    if price is not None and price != company.usd_per_gpu_hour:
        print_note(
            f"it was made at ${company.usd_per_gpu_hour} per GPU-hour; name an empty folder with "
            "--lake for another price"
        )


def _tour(company: Company) -> tuple[tuple[str, str, str], ...]:
    """(reader, what is to be seen, where) by reader."""
    job = {"job": company.worst.job_id}
    return (
        ("finance, management", "what to fix first, and what it is worth", ""),
        ("whoever runs the cluster", "what breaks, where, and what nobody uses", "fleet"),
        ("the engineer", "which GPU holds the others up, since when, why", f"job?{urlencode(job)}"),
        (
            "whoever buys hardware",
            "that job on every device on offer",
            f"procurement?{urlencode(job)}",
        ),
    )


def _own_folder() -> Path:
    """A folder of this user's own, kept between starts."""
    return Path(tempfile.gettempdir()) / f"steptax-company-{getpass.getuser()}"
