"""Slowdown from per-rank computing times alone, where there is no dependency graph."""

from __future__ import annotations

import numpy as np

from steptax.app.compute.measure import Level, Measure
from steptax.app.whatif.optypes import COMPUTE
from steptax.app.whatif.trace import Floats, Trace, earliest


def computing(trace: Trace) -> Floats:
    """[P, S, D] seconds of forward and backward computing of each worker in each step."""
    out = np.zeros((trace.stages, *trace.shape[1:]))
    for name in COMPUTE:
        rows = trace.rows_of[name]
        stage = trace.op_stage[rows]
        for p in range(trace.stages):
            here = np.flatnonzero(stage == p) + rows.start
            out[p] += trace.duration_s[here].sum(axis=0)
    return out


def per_rank_estimate(trace: Trace) -> Measure:
    """T / (T - (E[max over ranks] - mean)) of forward plus backward time per rank and step.

    Within about a tenth of the slowdown that a dependency graph gives on public traces. Too high,
    by a third where there are as few micro-batches as stages: the bubble hides slowness.
    """
    compute = computing(trace)
    end = (trace.start_s + trace.duration_s).max(axis=0).max(axis=1)
    step = float((end - earliest(trace.start_s)).mean())
    excess = float(compute.max(axis=(0, 2)).mean() - compute.mean())
    return Measure(
        step / (step - excess),
        "x",
        level=Level.PHASES,
        inputs=("ops",),
        warnings=(
            "per-rank estimate, no dependency graph: good to about 10 % on public traces, too high "
            "with few micro-batches per pipeline stage, as the bubble hides slowness",
        ),
    )
