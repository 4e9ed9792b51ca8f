"""From a job's measured ranks to more ranks: how slow the slowest of them is expected to be."""

from __future__ import annotations

import numpy as np

from steptax.app.compute.stats.scaling import MAX_REACH, Extrapolation, extrapolate
from steptax.app.errors import UserError
from steptax.app.format import format_share
from steptax.app.views.kept import OfView
from steptax.app.views.whatif.curves import doubled
from steptax.app.views.whatif.job import JobInputs
from steptax.app.views.whatif.models import Curve, Line

_REPLICATES = 100
_curves = OfView(1)


def scale_curve(source: JobInputs) -> Curve | None:
    """Slowest rank / mean rank from the job's own size to 64 times it; None without its work.

    Beyond 64 times the ranks seen nothing is said.
    """
    return _curves.get(source, "scale", lambda: _curve(source))


def _curve(source: JobInputs) -> Curve | None:
    if source.work_us is None or source.work_us.shape[1] < 2:
        return None
    ranks = source.work_us.shape[1]
    nodes = None if source.nodes is None else np.unique(source.nodes, return_inverse=True)[1]
    if nodes is not None and nodes.max() == 0:
        nodes = None  # All on one node: it cannot be drawn against another.
    targets = doubled(ranks, MAX_REACH * ranks)
    try:
        found = [
            extrapolate(
                source.work_us,
                target,
                nodes=nodes,
                replicates=_REPLICATES,
                level=source.level,
            )
            for target in targets
        ]
    except UserError:
        return None
    slowdowns = [one.slowdown for one in found]
    line = Line(
        f"measured on {ranks:,} ranks",
        tuple(m.value for m in slowdowns),
        tuple(m.low for m in slowdowns),
        tuple(m.high for m in slowdowns),
    )
    first = slowdowns[0].value
    return Curve(
        key="scale",
        title="The same job on more ranks",
        x_title="ranks that wait for each other",
        x=tuple(float(target) for target in targets),
        y_title="slowest rank / mean rank",
        y_unit="x",
        lines=(line,),
        x_is_log=True,
        marker=None if first is None else (float(ranks), first),
        note=_note(found[-1], source),
    )


def _note(last: Extrapolation, source: JobInputs) -> str:
    said = (
        f"From {source.basis}. The band holds what other samples and other tails would give; "
        f"beyond {MAX_REACH} times the ranks seen nothing is said."
    )
    chance = last.any_bad_upper_ratio.value
    if chance is not None:
        said += (
            f" A fault that none of the {last.observed_ranks:,} ranks seen has may still be in up "
            f"to {format_share(chance)} of jobs of {last.target_ranks:,} ranks (95 %)."
        )
    caveats = "; ".join(last.expected_max_us.warnings)
    return f"{said} {caveats[:1].upper()}{caveats[1:]}." if caveats else said
