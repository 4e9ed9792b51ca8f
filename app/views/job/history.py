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
from steptax.app.views.job.models import HeatMap, Series
from steptax.app.views.job.shape import heat_map, thin_series
from steptax.app.views.job.spread import Spread, SpreadOfSteps, spread_of
from steptax.app.views.workspace import Workspace

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
    last = int(times["step"][-1].as_py())
    span = last - int(times["step"][0].as_py()) + 1
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
    listed = _listed(found, places, level)
    blocks = found.blocks.astype(np.int64)
    until = np.minimum(blocks + block - 1, last)
    gone = dropped(ws.lake, "steps", job_id)
    unit = "units" if ws.job(job_id).get("time_basis") == "relative" else "ms"
    spread = spread_of(ws, job_id, times["step"].to_numpy().astype(np.int64), level, unit)
    return HistoryView(
        job_id,
        _sentence(listed, times.num_rows, block, unit),
        unit,
        times.num_rows,
        int(times["row_count"].to_numpy().sum()),
        block,
        heat_map(found.excess_us.T, found.ranks.astype(np.int64), blocks, until=until),
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
    found: History, places: dict[int, dict[str, Any]], level: Level
) -> tuple[HistoryRank, ...]:
    excess, work = found.mean_excess_us, found.mean_work_us
    order = np.lexsort((found.ranks, -np.nan_to_num(excess, nan=-np.inf)))[:LISTED_RANKS]
    rows = []
    for i in order:
        slow = found.slow_blocks(int(i))
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


def _sentence(listed: tuple[HistoryRank, ...], steps: int, block: int, unit: str) -> str:
    slow = [row for row in listed if row.slow_blocks]
    if not slow:
        return f"Over all {steps:,} steps no rank stood out in any {block:,} of them."
    first = slow[0]
    more = f", and {len(slow) - 1} more ranks stood out" if len(slow) > 1 else ""
    return (
        f"Over all {steps:,} steps rank {first.rank} worked "
        f"{_beyond(first.excess.value or 0.0, unit)} a step beyond its peers' mean, "
        f"in {first.slow_blocks} of {first.blocks} blocks of {block:,} "
        f"steps, first from step {first.slow_from_step:,} on{more}."
    )


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
