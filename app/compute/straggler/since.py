"""What a repair returns of the steps since a rank became slow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.straggler.recover import saved_us
from steptax.app.compute.straggler.result import StragglerResult
from steptax.app.compute.straggler.tables import Used
from steptax.app.compute.straggler.totals import Totals

_NOBODY = "no rank is slow for good by its own work"


def recoverable_since(result: StragglerResult, first_step: int) -> Measure:
    """``result.recoverable_ratio`` of the steps from ``first_step`` on: of the same ranks."""
    used, ranks = result.used, result.verdict.ranks
    if used is None or result.verdict.culprit is None or result.slow_links is not None:
        return Ratio.missing("ratio", _NOBODY, level=result.basis.level)
    part = _from(used, first_step)
    if not part.arrived.step_us.sum() > 0:
        return Ratio.missing("ratio", "no step since then took any time", level=result.basis.level)
    totals = Totals.of(part, "mean", result.recoverable_ratio.warnings)
    places = np.flatnonzero(np.isin(part.matrix.ranks, ranks))
    return totals.saved(saved_us(part.arrived.arrival_us, part.excess_us, places))


def _from(used: Used, first_step: int) -> Used:
    """The steps from ``first_step`` on, held against the same peers; nothing is copied."""
    first = int(np.searchsorted(used.matrix.steps, first_step))
    rows = slice(first, None)
    places = np.arange(first, len(used.matrix.steps))
    return replace(
        used,
        matrix=used.matrix.select(places, np.arange(len(used.matrix.ranks))),
        arrived=used.arrived.of_steps(rows),
        peers_us=used.peers_us[rows],
        excess_us=used.excess_us[rows],
        slow=used.slow[rows],
        last=used.last[rows],
    )
