"""The what-if analysis in one call, from a file or from the ``ops`` table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from steptax.app.whatif.analysis import THRESHOLD, analyse, prepare
from steptax.app.whatif.errors import GraphError
from steptax.app.whatif.estimate import per_rank_estimate
from steptax.app.whatif.generic_rows import is_generic
from steptax.app.whatif.report import WhatIfResult, build_result, refused_result
from steptax.app.whatif.rows import one_job, rows_from_lake
from steptax.app.whatif.trace import JobSizes, Trace, make_trace, read_trace


def analyse_ops(
    table: pa.Table,
    *,
    sizes: JobSizes | Mapping[str, Any] | None = None,
    price: Decimal | float | None = None,
    threshold: float = THRESHOLD,
    steps: Sequence[int] | None = None,
    in_stream: Collection[str] = (),
    align_clocks: bool = False,
) -> WhatIfResult:
    """Analyse rows of the ``ops`` table of one job.

    ``sizes`` are the job's parallel sizes as the ``jobs`` table names them (``dp_size``, ...,
    ``world_size``); ``price`` in USD per GPU-hour; decompositions are published from a slowdown of
    ``threshold`` on; ``steps`` restricts the means; ``in_stream`` names further operation types
    that run on the compute stream; ``align_clocks`` corrects clocks that are off.

    Operations of a profiler, which follow no schedule that is known, are analysed as lanes and
    communications; the result has ``generic`` in place of ``analysis`` then.

    InputError when the rows are no trace of training steps. Where they are, but no dependency graph
    fits them, the result has the per-rank estimate and the reason.
    """
    if is_generic(table):
        # Imported here: its parts are of no use to other traces, and these start faster without.
        from steptax.app.whatif.generic import analyse_generic

        one_job(table)
        return analyse_generic(
            table,
            _sizes(sizes),
            price=price,
            threshold=threshold,
            steps=steps,
            align_clocks=align_clocks,
        )
    trace = make_trace(rows_from_lake(table, in_stream=in_stream), _sizes(sizes))
    return analyse_trace(
        trace, price=price, threshold=threshold, steps=steps, align_clocks=align_clocks
    )


def analyse_file(
    path: Path,
    *,
    sizes: JobSizes | Mapping[str, Any] | None = None,
    price: Decimal | float | None = None,
    threshold: float = THRESHOLD,
    steps: Sequence[int] | None = None,
    unit: str = "s",
    in_stream: Collection[str] = (),
    align_clocks: bool = False,
) -> WhatIfResult:
    """The same for a Parquet file with the columns of the OSDI'25 artifact, times in ``unit``."""
    trace = read_trace(path, sizes, unit=unit, in_stream=in_stream)
    return analyse_trace(
        trace, price=price, threshold=threshold, steps=steps, align_clocks=align_clocks
    )


def analyse_trace(
    trace: Trace,
    *,
    price: Decimal | float | None = None,
    threshold: float = THRESHOLD,
    steps: Sequence[int] | None = None,
    align_clocks: bool = False,
) -> WhatIfResult:
    """The same for a trace in memory."""
    try:
        model = prepare(trace, steps=steps, align_clocks=align_clocks)
    except GraphError as error:
        return refused_result(
            trace.findings, f"no dependency graph: {error}", per_rank_estimate(trace)
        )
    return build_result(analyse(model, threshold=threshold), price)


def _sizes(sizes: JobSizes | Mapping[str, Any] | None) -> JobSizes:
    return sizes if isinstance(sizes, JobSizes) else JobSizes.from_mapping(sizes or {})
