"""Slowdown from per-rank computing times alone, where there is no dependency graph."""

from __future__ import annotations

import numpy as np

from steptax.app.compute.measure import Level, Measure
from steptax.app.whatif.optypes import COMPUTE
from steptax.app.whatif.trace import Trace, earliest


def per_rank_estimate(trace: Trace) -> Measure:
    """T / (T - (E[max over ranks] - mean)) of forward plus backward time per rank and step.

    Within about a tenth of the slowdown that a dependency graph gives on public traces.
    """
    _, steps, dps = trace.shape
    compute = np.zeros((trace.stages, steps, dps))
    for name in COMPUTE:
        rows = trace.rows_of[name]
        np.add.at(compute, trace.op_stage[rows], trace.duration_s[rows])
    end = (trace.start_s + trace.duration_s).max(axis=0).max(axis=1)
    step = float((end - earliest(trace.start_s)).mean())
    excess = float(compute.max(axis=(0, 2)).mean() - compute.mean())
    return Measure(
        step / (step - excess),
        "ratio",
        level=Level.PHASES,
        inputs=("ops",),
        warnings=("per-rank estimate, no dependency graph: good to about 10 %",),
    )
