"""The whole history of a job that is too long to be read row by row, from its roll-ups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.rows import Ints
from steptax.app.compute.straggler.history import History, history, waiting_ratio
from steptax.app.format import MINUS, format_value
from steptax.app.lake.kept import dropped
from steptax.app.schema.rollups import SPAN_STEPS, WINDOW_STEPS
from steptax.app.views.job.extent import is_big
from steptax.app.views.job.models import HeatMap, IntArray, Series
from steptax.app.views.job.shape import heat_map, thin_series
from steptax.app.views.job.spread import Spread, SpreadOfSteps, spread_of
from steptax.app.views.workspace import Workspace
from steptax.app.words import count_text

LISTED_RANKS = 20
#: Cells of ranks by blocks that are read; beyond it blocks are wider.
MOST_CELLS = 1_000_000


@dataclass(frozen=True)
class HistoryRank:
    """One rank over the whole job."""

    rank: int
    host: str | None
    excess: Measure
    """Mean work of a step beyond its peers' mean, ms."""
    share: Measure
    """Of the peers' mean work."""
    slow_blocks: int
    blocks: int
    slow_from_step: int | None


@dataclass(frozen=True)
class HistoryView:
    """All steps of a job: how long they took, and who exceeded the peers when."""

    job_id: str
    sentence: str
    unit: str
    """Of times: ms, or the source's own where they are normalised."""
    steps: int
    rows: int
    block_steps: int
    heat: HeatMap
    series: Series
    ranks: tuple[HistoryRank, ...]
    spread: Spread | None
    """None where no distribution of the ranks' work was kept."""
    note: str | None = None
    """Which of the rows behind it are gone."""


def history_view(ws: Workspace, job_id: str) -> HistoryView | None:
    """All of ``job_id`` from roll-ups; None where it is small enough to be read as it is."""
    if not is_big(ws, job_id):
        return None
    times = ws.engine.run("history_steps", job_id=job_id)
    # The last rank is one more than the ranks of most steps at the least; gaps only help.
    ranks = max(1, int(np.max(times["row_count"].to_numpy())))
    first, last = (int(times["step"][end].as_py()) for end in (0, -1))
    span = last - first + 1
    block, window = block_of(ranks, span)
    sums = ws.engine.run("history_windows", job_id=job_id, step_block=block, window_steps=window)
    places = {row["rank"]: row for row in ws.engine.run("rank_places", job_id=job_id).to_pylist()}
    rank = sums["rank"].to_numpy()
    found = history(
        rank,
        sums["block_step"].to_numpy(),
        sums["row_count"].to_numpy(),
        sums["work_sum_us"].to_numpy(),
        _stages(np.unique(rank), places),
    )
    level = _level(times)
    # Blocks begin at multiples of their width; a job begins and ends anywhere inside them.
    begin = np.maximum(found.blocks.astype(np.int64), first)
    until = np.minimum(found.blocks.astype(np.int64) + block - 1, last)
    listed = _listed(found, begin, places, level)
    gone = dropped(ws.lake, "steps", job_id)
    unit = "units" if ws.job(job_id).get("time_basis") == "relative" else "ms"
    spread = spread_of(ws, job_id, times["step"].to_numpy().astype(np.int64), level, unit)
    return HistoryView(
        job_id,
        _sentence(found, begin, until, times.num_rows, block, unit),
        unit,
        times.num_rows,
        int(times["row_count"].to_numpy().sum()),
        block,
        heat_map(found.excess_us.T, found.ranks.astype(np.int64), begin, until=until),
        _series(times, spread),
        listed,
        spread.whole,
        None if gone is None else gone.sentence,
    )


def block_of(ranks: int, steps: int) -> tuple[int, int]:
    """Steps of a cell of the heat map of a job, and of the widest stored windows that make it."""
    blocks = max(1, MOST_CELLS // ranks)
    least = WINDOW_STEPS * max(1, -(-steps // (WINDOW_STEPS * blocks)))
    window = max(width for width in (WINDOW_STEPS, *SPAN_STEPS) if width <= least)
    return window * -(-least // window), window


def _stages(ranks: Ints, places: dict[int, dict[str, Any]]) -> Ints | None:
    stages = [places.get(int(rank), {}).get("pp") for rank in ranks]
    return None if any(s is None for s in stages) else np.array(stages, dtype=np.int64)


def _level(times: pa.Table) -> Level:
    """What the rows tell; a step time alone may span the barrier, and then tells of nobody."""
    known = pc.sum(times["comm_n"]).as_py() + pc.sum(times["compute_n"]).as_py()
    return Level.PHASES if known else Level.STEP_TIME


def _listed(
    found: History, begin: IntArray, places: dict[int, dict[str, Any]], level: Level
) -> tuple[HistoryRank, ...]:
    excess, work, is_slow = found.mean_excess_us, found.mean_work_us, found.is_slow
    rows = []
    for i in _by_excess(found)[:LISTED_RANKS]:
        slow = begin[is_slow[i]]
        rank = int(found.ranks[i])
        rows.append(
            HistoryRank(
                rank,
                places.get(rank, {}).get("host"),
                Measure(float(excess[i]) / 1000.0, "ms", level=level),
                Measure(float(excess[i] / (work[i] - excess[i])), "ratio", level=level),
                len(slow),
                int(np.count_nonzero(found.rows[i])),
                int(slow[0]) if len(slow) else None,
            )
        )
    return tuple(rows)


def _by_excess(found: History) -> IntArray:
    """Places of the ranks, those that exceed their peers most over the whole job first."""
    excess = np.nan_to_num(found.mean_excess_us, nan=-np.inf)
    return np.lexsort((found.ranks, -excess)).astype(np.int64)


def _sentence(
    found: History, begin: IntArray, until: IntArray, steps: int, block: int, unit: str
) -> str:
    """Of all ranks, not of those that are listed: a rank may be slow in one block of many."""
    is_slow, whole = found.is_slow, f"Over all {count_text(steps, 'step')}"
    order = _by_excess(found)
    slow = order[is_slow[order].any(axis=1)]
    several = len(begin) > 1
    if not len(slow):
        where = f" in any block of {block:,} of them" if several else ""
        return f"{whole} no rank stood out{where}."
    i = int(slow[0])
    excess = _beyond(float(found.mean_excess_us[i]) / 1000.0, unit)
    text = f"{whole} rank {found.ranks[i]} worked {excess} a step beyond its peers' mean"
    if several:
        reported = int(np.count_nonzero(found.rows[i]))
        first = int(np.argmax(is_slow[i]))
        text += (
            f", slow in {np.count_nonzero(is_slow[i]):,} of "
            f"{count_text(reported, 'block')} of {block:,} steps, "
            f"first in steps {begin[first]:,} to {until[first]:,}"
        )
    more = count_text(len(slow) - 1, "more rank")
    return f"{text}, and {more} stood out." if len(slow) > 1 else f"{text}."


def _beyond(value: float, unit: str) -> str:
    text = format_value(abs(value), unit)
    return f"{MINUS if value < 0 else '+'}{text}"


def _series(times: pa.Table, spread: SpreadOfSteps) -> Series:
    column = {name: times[name].to_numpy() for name in times.column_names}
    count = len(column["step"])
    longest = column["work_max_us"].astype(float)
    return thin_series(
        Series(
            column["step"].astype(np.int64),
            column["duration_us"] / 1000.0,
            spread.p50_ms,
            spread.p95_ms,
            longest / 1000.0,
            column["work_max_rank"].astype(np.int64),
            waiting_ratio(
                column["row_count"],
                column["duration_us"],
                column["work_sum_us"],
                column["work_max_us"],
            ),
            None,
            count,
        )
    )
