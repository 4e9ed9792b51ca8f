"""Benchmark runs, comparisons and acceptance, as text and as data."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from dataclasses import asdict
from typing import Any

from steptax.app.commands.output import console, print_wide, table_of
from steptax.app.compute.bench.compare import Comparison, gravity
from steptax.app.compute.collectives.alpha_beta import AlphaBeta, fit_alpha_beta
from steptax.app.compute.collectives.arrivals import CollectiveArrivals, collective_arrivals
from steptax.app.compute.collectives.bus_bandwidth import Collective, Point
from steptax.app.compute.collectives.calls import Call
from steptax.app.format import UNKNOWN, format_measure, format_share, format_value
from steptax.app.views.bench.report import COLUMNS, check_cells
from steptax.app.views.bench.suspect import SuspectTest
from steptax.app.views.bench.view import AcceptanceView, RunComparison
from steptax.benchmarks.hardware.bench import BenchRun
from steptax.benchmarks.hardware.rows import own_work_ms
from steptax.benchmarks.hardware.runner import Result, slowest

_LISTED = 60
#: What a figure of a run is, wherever it is shown.
HEADLINE = "median of repeats"


def as_data(run: BenchRun) -> dict[str, Any]:
    """What ``bench --json`` prints."""
    return {
        "run_id": run.run_id,
        "host": run.host,
        "measured_at_us": run.began_us,
        "software": run.software,
        "results": [row | {"repeats": json.loads(row["repeats"])} for row in run.rows],
        "slowest": [
            {
                "test": r.case.test,
                "size": r.case.size,
                "dtype": r.case.dtype,
                "device": r.backend.device_id,
                "value": r.spread.value,
                "unit": r.case.unit,
                "spread_ratio": r.spread.spread_ratio,
                "device_state_missing": r.window.reason,
            }
            for r in slowest(run.results)
        ],
        "collectives": None if run.collectives is None else _collectives(run),
    }


def _collectives(run: BenchRun) -> dict[str, Any]:
    found = run.collectives or {}
    arrivals = _arrivals(found)
    return {
        "library": found["library"],
        "ranks": found["ranks"],
        "fits": {op: asdict(fit) for op, fit in _fits(run).items()},
        "arrivals": None
        if arrivals is None
        else {
            "late_rank": arrivals.late_rank,
            "verdict": arrivals.verdict,
            "last_share": dict(arrivals.last_share),
            "lateness_us": arrivals.lateness,
            "reason": arrivals.reason,
        },
        "own_work_ms": own_work_ms(found) if arrivals is not None else [],
    }


def _arrivals(found: dict[str, Any]) -> CollectiveArrivals | None:
    calls = [
        Call("arrivals", "all_reduce", seq, rank, n_ranks=len(found["arrivals"]),
             duration_us=one["duration_us"])
        for rank, rounds in enumerate(found["arrivals"])
        for seq, one in enumerate(rounds)
    ]  # fmt: skip
    judged = collective_arrivals(calls)
    return judged[0] if judged else None


def _fits(run: BenchRun) -> dict[str, AlphaBeta]:
    points: dict[str, list[Point]] = defaultdict(list)
    ranks = len((run.collectives or {"ranks": []})["ranks"])
    for row in run.rows:
        op, _, metric = row["test"].rpartition(" ")
        if metric == "time" and row["gpu_uuid"] == "all":
            points[op].append(Point(int(row["size"]), row["value"] / 1e6))
    return {op: fit_alpha_beta(Collective.read(op), ranks, found) for op, found in points.items()}


def print_run(run: BenchRun, data: dict[str, Any], found_by: str | None) -> None:
    """Tables of a run. ``found_by`` leads a next command to its lake; None: it was not kept."""
    if run.results:
        seen = any(r.window.reason is None for r in run.results)
        rows = [
            [
                f"{r.case.test} {r.case.size} {r.case.dtype}",
                r.backend.device_id,
                format_value(r.spread.value, r.case.unit),
                f"{r.spread.p5:,.3g}–{r.spread.p95:,.3g}",
                format_share(r.spread.spread_ratio),
                *(_state(r) if seen else ()),
            ]
            for r in run.results
        ]
        names = ("test", "device", HEADLINE, "p5–p95 of all", "spread of repeats")
        state = ("clock", "power", "temperature") if seen else ()
        _table(f"{run.run_id} on {run.host}", (*names, *state), rows)
        if len({r.backend.device_id for r in run.results}) > 1:
            for one in slowest(run.results):
                value = format_value(one.spread.value, one.case.unit)
                _say(f"  slowest, {one.case.test} {one.case.size} {one.case.dtype}: "
                     f"{one.backend.device_id}, {value}")  # fmt: skip
    if run.collectives is not None:
        _print_collectives(run, data["collectives"])
    if found_by is None:
        _say("not kept in a lake (--no-store): it can be neither compared nor judged later")
        return
    name = shlex.quote(run.run_id)
    _say(
        f"next: steptax bench compare {name} OTHER{found_by}; steptax bench accept {name}{found_by}"
    )


def _print_collectives(run: BenchRun, data: dict[str, Any]) -> None:
    by_cell: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for row in run.rows:
        op, _, metric = row["test"].rpartition(" ")
        if row["gpu_uuid"] == "all":
            by_cell[op, row["size"]][metric] = row
    rows = [
        [
            op,
            f"{int(size):,}",
            format_value(cell["time"]["value"], "us"),
            format_value(cell["time"]["p50"], "us"),
            format_value(cell["time"]["p95"], "us"),
            format_value(cell["time"]["p99"], "us"),
            f"{cell['algbw']['value']:,.3g}",
            f"{cell['busbw']['value']:,.3g}",
            f"{cell['time']['wrong']:,}",
        ]
        for (op, size), cell in by_cell.items()
    ]
    calls = ("p50 of calls", "p95 of calls", "p99 of calls")
    names = ("collective", "bytes", HEADLINE, *calls, "algbw GB/s", "busbw GB/s", "wrong")
    title = f"{len(data['ranks'])} ranks, {data['library']}, slowest rank of each call"
    _table(title, names, rows)
    for op, fit in _fits(run).items():
        rms = "" if fit.rms_ratio is None else f", residuals {format_share(fit.rms_ratio)}"
        bus = format_measure(fit.bus_gb_per_s)
        alpha = f"{format_measure(fit.intercept_us)} empty, alpha {format_measure(fit.alpha_us)}"
        _say(f"  {op}: {alpha} a step, busbw tends to {bus}{rms}")
        for warning in fit.warnings:
            _say(f"    {warning}")
    work = ", ".join(f"{rank}: {ms:,.1f} ms" for rank, ms in enumerate(data["own_work_ms"]))
    _say(f"  the same own work on each rank: {work}")
    if data["arrivals"] is not None:
        # They are part of every collective run, whichever operations were asked for.
        _say(f"  arrival test, rounds of own work and an all-reduce: {data['arrivals']['verdict']}")


def _state(result: Result) -> tuple[str, str, str]:
    window = result.window
    return (
        format_value(window.clock_mhz, "MHz"),
        format_value(window.power_w, "W"),
        format_value(window.temperature_c, "degC"),
    )


def comparison_data(found: RunComparison) -> dict[str, Any]:
    """What ``bench compare --json`` prints."""
    return {
        "run": found.run,
        "base": found.base,
        "sentence": found.sentence,
        "compared": len(found.compared),
        "judged": len(found.judged),
        "not_judged": len(found.compared) - len(found.judged),
        "differing": len(found.differing),
        "differences": found.differences,
        "only_in_run": found.only_here,
        "only_in_base": found.only_there,
        "figures": [
            {
                "test": c.figure.test,
                "size": c.figure.size,
                "dtype": c.figure.dtype,
                "host": c.figure.host,
                "device": c.figure.device_id,
                "unit": c.figure.unit,
                "value": c.figure.value,
                "base": c.base.value,
                "gap_ratio": c.comparison.gap,
                "p": c.comparison.p,
                "judged": c.comparison.unjudged is None,
                "differs": c.comparison.differs,
                "status": c.comparison.status,
                "reason": c.comparison.reason,
            }
            for c in found.compared
        ],
    }


def print_comparison(found: RunComparison) -> None:
    """Differences first; the rest below."""
    _say(f"{found.run} against {found.base}: {found.sentence}")
    for line in found.differences:
        _say(f"  {line}")
    if found.only_here or found.only_there:
        _say(f"  not compared: {found.only_here} only here, {found.only_there} only there")
    ordered = sorted(found.compared, key=lambda c: not c.comparison.differs)
    rows = [
        [
            f"{c.figure.test} {c.figure.size} {c.figure.dtype}",
            c.figure.device_id,
            _differs(c.comparison),
            format_value(c.figure.value, c.figure.unit),
            format_value(c.base.value, c.figure.unit),
            c.comparison.reason,
        ]
        for c in ordered[:_LISTED]
    ]
    # As `print_run` tells them, so that both show the same figure of a run.
    names = ("test", "device", "differs", f"here, {HEADLINE}", f"there, {HEADLINE}", "why")
    _table("", names, rows)
    if len(ordered) > _LISTED:
        _say(f"... and {len(ordered) - _LISTED} more; --json prints all")


def _differs(comparison: Comparison) -> str:
    if comparison.unjudged is not None:
        return "not judged"
    return "yes" if comparison.differs else "no"


def print_acceptance(view: AcceptanceView) -> None:
    """The node report."""
    for node in view.nodes:
        _say(node.sentence)
        for device, meaning in node.xids:
            _say(f"  Xid {meaning.xid} on {device}: {meaning.group}, {meaning.action}")
        for warning in node.warnings:
            _say(f"  {warning}")
        graver = sorted(node.checks, key=lambda c: -gravity(c.status))
        _table("", COLUMNS, [check_cells(c, full=False) for c in graver[:_LISTED]])


def suspect_data(found: SuspectTest) -> dict[str, Any]:
    """What ``bench suspect --json`` prints."""
    return {name: getattr(found, name) for name in SuspectTest.__dataclass_fields__}


def print_suspect(found: SuspectTest) -> None:
    """The commands, and what they cost."""
    if found.rank is None:
        _say(found.reason or "")
        return
    _say(f"rank {found.rank}: {found.place or found.reason or UNKNOWN}")
    for command in found.commands:
        _say(f"  {command}")
    _say(f"{found.minutes:g} minutes of the node: {_with_reason(found.cost_node_usd)}")
    _say(f"with the whole job waiting: {_with_reason(found.cost_job_usd)}")
    _say(f"won back within: {_with_reason(found.pays_back_hours)} of running without the straggler")


def _with_reason(measure: Any) -> str:
    return format_measure(measure) if measure.value is not None else f"unknown, {measure.reason}"


def _say(text: str) -> None:
    console.print(text)


def _table(title: str, columns: tuple[str, ...], rows: list[list[str]]) -> None:
    print_wide(table_of(title, columns, rows))
