"""Rows that tell of the same step and rank more than once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.straggler.steps import RepeatedError, StepMatrix

Columns = Mapping[str, NDArray[np.generic]]


def matrix_of_newest(
    columns: Columns, build: Callable[[Columns], StepMatrix]
) -> tuple[StepMatrix, int]:
    """What ``build`` makes of ``columns`` by ``newest_of_each``, and how many rows were left out.

    Looking for repeats costs nothing where there are none: ``build_matrix`` finds them anyway.
    """
    try:
        return build(columns), 0
    except RepeatedError:
        kept, left_out = newest_of_each(columns)
        return build(kept), left_out


def newest_of_each(columns: Columns) -> tuple[Columns, int]:
    """``columns`` with one row a step and rank, by step and rank; how many rows were left out.

    A job that was started again from a checkpoint without saying that it is a further attempt tells
    of its last steps twice, and so do two processes that take themselves for the same rank. The row
    that started last holds: it is what the job went on from. Where starts are unknown or equal, the
    longer one does, whatever order the rows come in: a query gives them in none. ``columns`` [N]
    are those of ``build_matrix``.
    """
    step, rank = np.asarray(columns["step"]), np.asarray(columns["rank"])
    start_us = columns.get("start_us")
    began = np.zeros(len(step)) if start_us is None else np.asarray(start_us, dtype=np.float64)
    # Unknown starts come before known ones; of equals all else decides, the duration first.
    names = sorted({*columns} - {"step", "rank", "start_us"}, key=lambda n: (n == "duration_us", n))
    rest = [np.asarray(columns[name]) for name in names]
    order = np.lexsort((*rest, np.nan_to_num(began, nan=-np.inf), rank, step))
    step, rank = step[order], rank[order]
    is_last = np.ones(len(order), dtype=bool)
    is_last[:-1] = (step[1:] != step[:-1]) | (rank[1:] != rank[:-1])
    kept = order[is_last]
    left_out = len(order) - len(kept)
    return {name: np.asarray(values)[kept] for name, values in columns.items()}, left_out
