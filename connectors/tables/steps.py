"""``steps``: per-rank step times, with or without their phases, in any table format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.errors import InputError
from steptax.app.schema import Batch, table
from steptax.connectors.base import Capabilities, LineFormat, Options, RawChunk, Run
from steptax.connectors.tables.cells import Cells
from steptax.connectors.tables.clock import clock_note
from steptax.connectors.tables.columns import Plan, Term, describe, lacking, make_plan, unused_note
from steptax.connectors.tables.facts import JobFacts
from steptax.connectors.tables.rows import Header
from steptax.connectors.tables.screen import Screen, rank_facts, source_stem
from steptax.connectors.tables.stephints import suggest_mapping
from steptax.connectors.tables.steptargets import (
    ATTEMPT,
    COMM_PARTS,
    DURATION,
    JOB,
    PHASES,
    PLACE,
    RANK,
    STEP,
    TARGETS,
)
from steptax.connectors.tables.tabular import TableChunk, TabularConnector, require, split_rows

#: A record whose phases exceed its duration by more than this is wrong, not rounded.
PHASE_SLACK_RATIO = 0.01
PHASE_SLACK_US = 1000


class StepsConnector(TabularConnector):
    """Rows of ``steps``, and what they say of the job and its ranks."""

    kind = "steps"
    version = 1
    title = "per-rank step times and phases: CSV, TSV, JSON Lines (also .gz), Parquet"
    table = "steps"
    targets = TARGETS
    doc = (
        "One row per step and rank, in CSV, TSV, JSON Lines (these also packed by gzip) or "
        "Parquet; what a file is, its content tells.\n"
        "Units: of the column's name (_ns, _us, _ms, _s), else --time-unit. A name that ends in "
        "_norm, or --time-unit relative, is a normalised time without a clock: one unit is stored "
        "as 1000 us and no dollar is computed from it. Where every name tells another unit, "
        "relative is refused, and any other --time-unit is not used and said so.\n"
        "--map TARGET=COLUMN or TARGET=A+B reads a target from other columns. Targets:\n"
        + describe(TARGETS)
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 2 with phases, else level 1; InputError when columns or units are missing."""
        _, plan, _ = self.first_rows(source, options)
        phases = [t.name for t in (*PHASES, *COMM_PARTS) if t.name in plan.terms]
        tables = ("steps", "jobs", "ranks")
        if phases:
            return Capabilities(
                tables,
                2,
                f"step time of each rank and its phases: {', '.join(phases)}",
                "which operation or which device made a phase slow",
            )
        return Capabilities(
            tables,
            1,
            "step time of each rank: how far they spread, and for how long",
            "why a rank is slow; where ranks wait for each other inside a step all take the same "
            "time, and the culprit cannot be told",
        )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; InputError names what is missing and suggests a map."""
        found = make_plan(TARGETS, header, options, where)
        terms = dict(found.terms)
        if STEP.name not in terms and DURATION.name in terms and "time" in found.unused:
            terms[STEP.name] = (Term("time"),)
            found = replace(
                found, terms=terms, unused=tuple(c for c in found.unused if c != "time")
            )
        notes = unused_note(found)
        if options.job_id is not None and JOB.name in terms:
            column = terms[JOB.name][0].column
            notes += (f"all rows belong to job {options.job_id}; column {column} is not used",)
        if DURATION.name not in terms:
            summed = _summed(found)
            if not summed:
                names = ", ".join(t.name for t in lacking(TARGETS, found))
                raise InputError(
                    f"no column for {names}; the file has {', '.join(header.columns)}",
                    where=where,
                    hint=suggest_mapping(found.unused),
                )
            notes += (f"there is no duration: it is the sum of {', '.join(summed)}",)
        require((STEP, RANK), found, header, where)
        return replace(found, notes=notes)

    def lines(self, source: Path, options: Options) -> LineFormat | None:
        """CSV and JSON Lines grow by lines."""
        return self.table_lines(source, options)

    def begin(self, source: Path, options: Options) -> Run:
        """Collect what the chunks say of jobs and ranks."""
        return JobFacts(options)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows and rejects of one chunk, and its facts as ``jobs`` and ``ranks``."""
        chunk: TableChunk = raw.payload
        plan = self.plan(chunk.header, options, raw.source)
        rows = split_rows(chunk, raw.first_row, plan)
        screen = Screen(rows, plan, self.table)
        stem = source_stem(raw.source)
        values: dict[str, Any] = {t.column: screen.values(t) for t in TARGETS}
        if options.world_size is not None:
            outside = values["rank"].values >= options.world_size
            screen.refuse(
                outside & ~screen.failed,
                RANK,
                plan.terms["rank"][0].column,
                f"a rank below the world size {options.world_size}",
            )
        if DURATION.name not in plan.terms:
            values["duration_us"] = _sum_of_phases(screen, values)
        _refuse_long_phases(screen, values)
        if options.job_id is not None or values["job_id"] is None:
            values["job_id"] = options.job_id or stem
        else:
            screen.refuse(values["job_id"].null, JOB, plan.terms["job_id"][0].column)
        if values["attempt"] is None:
            values["attempt"] = options.attempt
        else:
            screen.refuse(values["attempt"].null, ATTEMPT, plan.terms["attempt"][0].column)
        columns = {c: values[c] for c in table("steps").names if c in values}
        good = screen.keep(columns)
        relative = any(t.unit == "relative" for ts in plan.terms.values() for t in ts)
        job: dict[str, Any] = {"time_basis": "relative" if relative else "wall"}
        if options.gpu_model is not None:
            job["gpu_model"] = options.gpu_model
        if JOB.name not in plan.terms and options.job_id is None:
            # A job that was named by its user may have a better name already.
            job["name"] = stem
        notes = (*plan.notes, *rows.notes, *clock_note(good))
        return [
            Batch("steps", good, screen.rejects(), notes),
            Batch("jobs", _job_facts(good, job)),
            Batch("ranks", rank_facts(screen, good, values, PLACE)),
        ]


def _summed(plan: Plan) -> list[str]:
    """The phases that make up the duration; without comm its parts do."""
    names = [t.name for t in PHASES if t.name in plan.terms]
    if "comm" not in names:
        names += [t.name for t in COMM_PARTS if t.name in plan.terms]
    return names


def _sum_of_phases(screen: Screen, values: dict[str, Any]) -> Cells:
    """The duration of files without one. A row that lacks a phase has none either."""
    names = _summed(screen.plan)
    cells = [values[f"{name}_us"] for name in names]
    for name, cell in zip(names, cells, strict=True):
        screen.refuse(
            cell.null,
            replace(DURATION, name=name),
            screen.plan.terms[name][0].column,
            "every phase, because the duration is their sum",
        )
    null = np.logical_or.reduce([cell.null for cell in cells])
    return Cells(sum(cell.values for cell in cells), null, null)


def _refuse_long_phases(screen: Screen, values: dict[str, Any]) -> None:
    """Refuse rows whose phases take longer than the step: their residual would be negative."""
    duration = values["duration_us"].values

    def known(name: str) -> Any:
        cells = values[f"{name}_us"]
        return 0 if cells is None else np.where(cells.null, 0, cells.values)

    parts = known("transfer") + known("wait")
    total = np.maximum(known("comm"), parts) + sum(
        known(t.name) for t in PHASES if t.name != "comm"
    )
    total = np.broadcast_to(total, duration.shape)
    limit = duration * (1 + PHASE_SLACK_RATIO) + PHASE_SLACK_US
    long = (total > limit) & ~screen.failed
    screen.refuse_because(
        long,
        "duration",
        [
            f"expected phases within the duration of {d} us, found {t} us"
            for d, t in zip(duration[long].tolist(), total[long].tolist(), strict=True)
        ],
    )


def _job_facts(good: pa.Table, job: dict[str, Any]) -> pa.Table:
    """One row per job among the rows ``good``, with its first start and last end if known."""
    if "start_us" in good.column_names:
        ends = pa.array(np.asarray(good["duration_us"].to_numpy(), np.int64), pa.int64())
        spans = pa.table(
            {
                "job_id": good["job_id"],
                "start_us": good["start_us"],
                "end_us": pc.add(good["start_us"], ends),
            }
        )
        asked = [("start_us", "min"), ("end_us", "max")]
        facts = spans.group_by("job_id", use_threads=False).aggregate(asked)
        facts = facts.rename_columns(["job_id", "start_us", "end_us"])
        if job["time_basis"] == "relative":
            facts = facts.drop_columns(["end_us"])
    else:
        facts = pa.table({"job_id": good["job_id"]}).group_by("job_id").aggregate([])
    for name, value in job.items():
        kind = table("jobs").column(name).type
        facts = facts.append_column(name, pa.repeat(pa.scalar(value, kind), facts.num_rows))
    return facts
