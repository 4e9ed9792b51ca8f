"""One step, rank by rank, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steptax.app.compute.straggler.arrival import arrivals, choose_basis
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.steps import PHASES, StepMatrix
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.job.models import PhaseBar, StepTimeline

#: Drawn last: what the rank was given no name for.
UNMEASURED = "unmeasured"


def build_timeline(
    loaded: LoadedJob, chosen: Sequence[int], limit: int, culprits: Sequence[int] = ()
) -> StepTimeline:
    """Bars for ``chosen`` ranks, the latest to arrive and an even sample of the others.

    ``culprits`` are those of the chosen that nobody had to choose: who makes the job wait. A
    chosen rank without a report in the step is named in the note: it has no bar.
    """
    matrix = loaded.matrix
    choice = choose_basis(matrix, StragglerRules())
    arrived = arrivals(matrix, choice)
    arrival = arrived.arrival_us[0]
    shown = _pick(matrix, arrival, chosen, limit)
    known = choice.unknown is None and len(matrix.ranks) > 1
    latest = int(matrix.ranks[int(np.nanargmax(arrival))]) if known else None
    order = np.argsort(arrival, kind="stable")
    middle = int(matrix.ranks[order[len(order) // 2]]) if known else None
    bars = tuple(
        PhaseBar(
            rank=int(matrix.ranks[i]),
            role=_role(int(matrix.ranks[i]), (chosen, culprits), latest, middle, known=known),
            label=_label(loaded, int(matrix.ranks[i])),
            phases_ms=_phases(matrix, i, arrived.wait_us, arrived.transfer_us, known=known),
        )
        for i in shown
    )
    total = len(matrix.ranks)
    notes = []
    there = set(matrix.ranks.tolist())
    if absent := [str(rank) for rank in chosen if rank not in there]:
        who = "rank" if len(absent) == 1 else "ranks"
        notes.append(f"no report of {who} {', '.join(absent)} in this step")
    if len(bars) < total:
        first = "the chosen, " if there.intersection(chosen) else ""
        notes.append(
            f"{len(bars)} of {total:,} ranks: {first}the latest and an even sample of the rest"
        )
    if choice.unknown:
        notes.append(choice.unknown)
    return StepTimeline(int(matrix.steps[0]), bars, total, "; ".join(notes) or None)


def _pick(matrix: StepMatrix, arrival: np.ndarray, chosen: Sequence[int], limit: int) -> list[int]:
    """Positions to draw, by rank."""
    total = len(matrix.ranks)
    if total <= limit:
        return list(range(total))
    keep = [int(i) for i in np.flatnonzero(np.isin(matrix.ranks, list(chosen)))][:limit]
    latest = np.argsort(-np.nan_to_num(arrival, nan=-np.inf), kind="stable")[: limit // 2]
    sample = np.linspace(0, total - 1, limit).round().astype(int)
    for i in [*latest.tolist(), *sample.tolist()]:
        if len(keep) == limit:
            break
        if i not in keep:
            keep.append(i)
    return sorted(keep)


def _role(
    rank: int,
    wanted: tuple[Sequence[int], Sequence[int]],
    latest: int | None,
    middle: int | None,
    *,
    known: bool,
) -> str:
    """``wanted``: the chosen ranks, and which of them are culprits."""
    chosen, culprits = wanted
    if rank == latest:
        return "last to arrive"
    if rank in culprits:
        return "culprit"
    if rank in chosen:
        return "chosen"
    if rank == middle:
        return "median"
    return "waits" if known else "rank"


def _label(loaded: LoadedJob, rank: int) -> str:
    place = loaded.places.get(rank, {})
    stage = place.get("pp")
    return f"rank {rank}" + (f" · stage {stage}" if loaded.matrix.has_pipeline else "")


def _phases(
    matrix: StepMatrix,
    i: int,
    wait_us: np.ndarray,
    transfer_us: np.ndarray | None,
    *,
    known: bool,
) -> dict[str, float]:
    """Milliseconds by phase of the rank at position ``i``, with what no phase covers."""
    total = float(matrix.duration_us[0, i])
    parts = {
        name: float(matrix.phases[name][0, i])
        for name in PHASES
        if name in matrix.phases and np.isfinite(matrix.phases[name][0, i])
    }
    if transfer_us is not None and np.isfinite(transfer_us[0, i]):
        parts["transfer"] = float(transfer_us[0, i])
    elif matrix.comm_us is not None and not known and np.isfinite(matrix.comm_us[0, i]):
        parts["communication"] = float(matrix.comm_us[0, i])
    rest = total - sum(parts.values())
    if known and np.isfinite(wait_us[0, i]):
        wait = float(wait_us[0, i])
        if matrix.comm_us is None and matrix.wait_us is None and not matrix.work_is_partial:
            # The report ends before the barrier: waiting comes on top of it.
            parts[UNMEASURED] = max(0.0, rest)
            parts["wait"] = wait
            return {name: us / 1000.0 for name, us in parts.items() if us > 0}
        parts["wait"] = min(wait, max(0.0, rest))
        rest -= parts["wait"]
    parts[UNMEASURED] = max(0.0, rest)
    return {name: us / 1000.0 for name, us in parts.items() if us > 0}
