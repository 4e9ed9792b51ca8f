"""Which rank and step a job page shows when nobody has chosen."""

from __future__ import annotations

from steptax.app.charts.times import time_unit
from steptax.app.views.job.models import JobView

_LISTED = 4


def focus(view: JobView, rank: int | None, step: int | None) -> tuple[int | None, int]:
    """The chosen rank and step; else the culprit (or the rank with most excess) and its worst step.

    The step falls back to the newest of the window.
    """
    if rank is None:
        rank = view.card.culprit_rank
    if rank is None and view.ranks:
        rank = view.ranks[0].rank
    if step is None:
        step = view.card.slow_steps[0] if view.card.slow_steps else view.window.last_step
    return rank, step


def stopped_lines(view: JobView) -> tuple[str, ...]:
    """Ranks that no longer report, the first few in words and the rest counted."""
    texts = [rank.text for rank in view.coverage.stopped]
    more = len(texts) - _LISTED
    return (*texts[:_LISTED], *((f"and {more:,} more ranks",) if more > 0 else ()))


def job_time_unit(view: JobView) -> str:
    """Unit of the job's durations by the length of its steps: ``ms``, ``s``.

    The source's own where they are normalised.
    """
    own = "units" if view.header.time_basis == "relative" else "ms"
    return time_unit(view.series.duration_ms, own)


def timeline_ranks(view: JobView, rank: int | None) -> tuple[int, ...]:
    """Ranks that the timeline must show: the one in focus, then the culprits."""
    wanted = ([] if rank is None else [rank]) + list(view.card.culprit_ranks)
    return tuple(dict.fromkeys(wanted))


def title_of(view: JobView) -> str:
    """Name and shape of the job in one line."""
    header = view.header
    parts = [
        header.name if header.name and header.name != header.job_id else None,
        header.framework,
        header.gpu_model,
        header.topology,
        header.state,
        f"attempt {header.attempt}" if header.attempt else None,
        "normalised times" if header.time_basis == "relative" else None,
    ]
    return " · ".join(part for part in parts if part)


def window_text(view: JobView) -> str:
    """Which steps the numbers rest on."""
    window = view.window
    return f"steps {window.first_step:,} to {window.last_step:,}"
