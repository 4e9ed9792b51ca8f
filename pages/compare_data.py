"""Comparisons for the Compare page, shared by all readers."""

from __future__ import annotations

from decimal import Decimal

from steptax.app.views.compare.load import Part, halves, part_of
from steptax.app.views.compare.view import SideBySide, side_by_side
from steptax.app.views.kept import Latest, unhurried
from steptax.app.views.pricing.of_job import price_version
from steptax.pages import data

#: Jobs that can be chosen from a list; others by their name in the link.
LISTED = 2_000
_compared: Latest[SideBySide] = unhurried(16)


def jobs() -> list[str]:
    """Jobs with steps, newest first."""
    ws = data.workspace()
    with_steps = ws.job_ids_with_steps()
    return [job_id for job_id in ws.job_ids() if job_id in with_steps][:LISTED]


def start(job_id: str) -> tuple[Part, Part]:
    """Both halves of a job, to begin with."""
    return halves(data.workspace(), job_id)


def part(job_id: str, steps: str, where: str) -> Part:
    """What a reader chose; UserError says what is wrong with its steps."""
    return part_of(job_id, steps.strip(), where)


def compared(a: Part, b: Part, price: Decimal | None) -> SideBySide:
    """``b`` against ``a`` at ``price``."""
    ws = data.workspace()
    note = data.price_note(price)
    return _compared.get(
        (ws.key, a, b, price, note, price_version(ws)),
        f"{ws.version(a.job_id)}-{ws.version(b.job_id)}",
        lambda: data.with_spinner(
            "Comparing", lambda: side_by_side(ws, a, b, price=price, price_note=note)
        ),
        is_live=any(data.is_running(job_id) for job_id in {a.job_id, b.job_id}),
    )
