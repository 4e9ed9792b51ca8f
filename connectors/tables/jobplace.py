"""Of which job and attempt the rows of a table are: what they say, else what the person said."""

from __future__ import annotations

from typing import Any

import numpy as np

from steptax.connectors.base import Options
from steptax.connectors.tables.cells import Cells
from steptax.connectors.tables.columns import Target
from steptax.connectors.tables.screen import Screen, source_stem


def place_in_job(
    screen: Screen, values: dict[str, Any], job: Target, options: Options, source: str
) -> None:
    """Fill ``job_id`` and ``attempt`` of ``values``.

    Without a column of jobs it is ``--job``, else the file's name; a cell without a job is refused.
    A cell without an attempt is of the one of ``--attempt``.
    """
    if values["job_id"] is None:
        values["job_id"] = options.job_id or source_stem(source)
    else:
        column = screen.plan.terms[job.name][0].column
        screen.refuse(values["job_id"].null, job, column, "a job id")
    attempt = values["attempt"]
    if attempt is None:
        values["attempt"] = options.attempt
    else:
        filled = np.where(attempt.null, options.attempt, attempt.values)
        values["attempt"] = Cells(filled, np.zeros(len(screen.rows), bool), attempt.bad)
