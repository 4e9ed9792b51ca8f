"""The tables of the fleet view; a value that is not known stays empty, with its reason beside."""

from __future__ import annotations

from collections.abc import Sequence

from steptax.app.charts.tables import Column, Table, table
from steptax.app.compute.fleet.slow import Spread
from steptax.app.compute.fleet.states import GroupRow
from steptax.app.compute.measure import Measure
from steptax.app.compute.spend.burn import FAST, SLOW
from steptax.app.format import format_count, format_range, format_value
from steptax.app.views.fleet.models import Capacity, FleetView, Places
from steptax.app.views.review.burn_words import burn_note, error_budget_text, hours_text
from steptax.app.words import count_text

_SUMS = {"jobs": "jobs", "gpu_hours": "GPU-hours", "usd": "USD"}
_US_PER_HOUR = "mean time between failures of a job, h"


def losses_table(view: FleetView) -> Table:
    """What breaks, costliest first, and last what nobody held."""
    columns = (
        Column("what", "what", "text", width_px=240),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("share", "of all", "ratio", "of the GPU-hours of all jobs"),
        Column("usd", "cost", "usd", "GPU-hours x price of each job"),
        Column("jobs", "jobs", "count"),
        Column("note", "what that is, or why it is unknown", "text", width_px=420),
    )
    rows = [
        (
            row.what,
            row.gpu_hours.value,
            row.share.value,
            row.usd.value,
            row.jobs,
            row.note if row.gpu_hours.value is not None else f"unknown: {row.gpu_hours.reason}",
        )
        for row in view.losses
    ]
    return table(columns, rows, note="lines overlap: a job that failed may have been slow as well")


def states_table(view: FleetView) -> Table:
    """Jobs, GPU-hours and cost by state."""
    columns = (
        Column("state", "state", "text"),
        Column("jobs", "jobs", "count"),
        Column("jobs_share", "of jobs", "ratio"),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("gpu_hours_share", "of GPU-hours", "ratio"),
        Column("usd", "cost", "usd", "GPU-hours x price of each job"),
        Column("note", "note", "text", width_px=320),
    )
    rows = [
        (
            row.state,
            row.jobs,
            row.jobs_share,
            row.gpu_hours.value,
            row.gpu_hours_share.value,
            view.costs["state"][row.state].value,
            _notes(row.gpu_hours, view.costs["state"][row.state]),
        )
        for row in view.states
    ]
    return table(columns, rows, sum_of=_SUMS)


def sizes_table(view: FleetView) -> Table:
    """Every class of size with every state, and the share of failures in two ways."""
    states = [row.state for row in view.states]
    columns = (
        Column("gpus", "GPUs", "text"),
        Column("jobs", "jobs", "count"),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("gpu_hours_share", "of GPU-hours", "ratio"),
        Column("failed_jobs_ratio", "failed, of jobs", "ratio", "of those with a known end"),
        Column("failed_gpu_hours_ratio", "failed, of GPU-hours", "ratio"),
        *(Column(f"jobs_{state}", f"{state}, jobs", "count") for state in states),
        *(Column(f"gpu_hours_{state}", f"{state}, GPU-hours", "number") for state in states),
        Column("note", "note", "text", width_px=320),
    )
    rows = [
        (
            row.size,
            row.jobs,
            row.gpu_hours.value,
            row.gpu_hours_share.value,
            row.failed_jobs.value,
            row.failed_gpu_hours.value,
            *(_jobs_in(row, state) for state in states),
            *(_hours_in(row, state) for state in states),
            _note(row.failed_jobs) or _note(row.gpu_hours),
        )
        for row in view.sizes
    ]
    return table(columns, rows)


def groups_by_state_table(groups: Sequence[GroupRow], name: str, view: FleetView) -> Table:
    """Every team, project, ... with every state: what failed, by jobs and by GPU-hours."""
    states = [row.state for row in view.states]
    columns = (
        Column("name", name, "text", width_px=170),
        Column("jobs", "jobs", "count"),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("gpu_hours_share", "of GPU-hours", "ratio"),
        Column("usd", "cost", "usd", "GPU-hours x price of each job"),
        Column("failed_jobs_ratio", "failed, of jobs", "ratio", "of those with a known end"),
        Column("failed_gpu_hours_ratio", "failed, of GPU-hours", "ratio"),
        *(Column(f"gpu_hours_{state}", f"{state}, GPU-hours", "number") for state in states),
        Column("note", "note", "text", width_px=320),
    )
    rows = [
        (
            row.name,
            row.jobs,
            row.gpu_hours.value,
            row.gpu_hours_share.value,
            view.costs[name][row.name].value,
            row.failed_jobs.value,
            row.failed_gpu_hours.value,
            *(_hours_in(row, state) for state in states),
            _note(row.failed_jobs) or _notes(row.gpu_hours, view.costs[name][row.name]),
        )
        for row in groups
    ]
    return table(columns, rows, sum_of=_SUMS)


def rate_table(view: FleetView) -> Table:
    """Failures by size against the 1/N model."""
    columns = (
        Column("gpus", "GPUs", "text"),
        Column("jobs", "jobs", "count"),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("failures", "failures", "count"),
        Column("expected", "expected by 1/N", "number"),
        Column("over_expected", "observed / expected", "number"),
        Column("low", "from", "number", "95 %, exact Poisson"),
        Column("high", "to", "number", "95 %, exact Poisson"),
        Column("mtbf_h", "MTBF, h", "number", _US_PER_HOUR),
        Column("mtbf_low_h", "from, h", "number"),
        Column("mtbf_high_h", "to, h", "number"),
        Column("chance", "chance", "number", "of a count this far off, if 1/N held"),
        Column("off_model", "goes with 1/N", "text"),
    )
    rows = [
        (
            row.size,
            row.jobs,
            row.gpu_hours,
            row.failures,
            row.expected,
            row.over_expected.value,
            row.over_expected.low,
            row.over_expected.high,
            row.mtbf_h.value,
            row.mtbf_h.low,
            row.mtbf_h.high,
            row.chance,
            "no" if row.off_model else "yes",
        )
        for row in view.rate.sizes
    ]
    return table(columns, rows)


def model_table(view: FleetView) -> Table:
    """What 1/N says for jobs of several sizes."""
    columns = (
        Column("gpus", "GPUs", "count"),
        Column("mtbf_h", "MTBF by 1/N, h", "number", _US_PER_HOUR),
        Column("low_h", "from, h", "number", "95 %, exact Poisson"),
        Column("high_h", "to, h", "number", "95 %, exact Poisson"),
        Column("note", "note", "text", width_px=320),
    )
    rows = [
        (
            point.gpus,
            point.mtbf_h.value,
            point.mtbf_h.low,
            point.mtbf_h.high,
            "; ".join(
                filter(
                    None,
                    (
                        point.mtbf_h.reason,
                        "extrapolated: no job was this large" if point.beyond_h else "",
                    ),
                )
            ),
        )
        for point in view.rate.model
    ]
    return table(columns, rows)


def fail_slow_table(view: FleetView) -> Table:
    """Fail-slow by class of size."""
    columns = (
        Column("gpus", "GPUs", "text"),
        Column("jobs", "jobs told", "count", "jobs whose steps can tell it"),
        Column("affected", "with fail-slow", "count"),
        Column("share", "share", "ratio"),
        Column("low", "from", "ratio", "95 %, exact"),
        Column("high", "to", "ratio", "95 %, exact"),
        Column("episodes", "episodes", "count"),
        Column("median_s", "median, s", "number", "length of an episode"),
        Column("longest_s", "longest, s", "number"),
        Column("lost_gpu_hours", "GPU-hours lost", "number"),
        Column("note", "note", "text", width_px=320),
    )
    rows = [
        (
            row.size,
            row.jobs,
            row.affected,
            row.share.value,
            row.share.low,
            row.share.high,
            row.episodes,
            row.median_s.value,
            row.longest_s.value,
            row.lost_gpu_hours.value,
            _note(row.share) or _note(row.median_s),
        )
        for row in view.fail_slow
    ]
    return table(columns, rows)


def causes_table(view: FleetView) -> Table:
    """Causes of fail-slow, costliest first."""
    columns = (
        Column("cause", "cause", "text", width_px=200),
        Column("episodes", "episodes", "count"),
        Column("lost_gpu_hours", "GPU-hours lost", "number"),
    )
    return table(columns, view.causes)


def spread_table(spread: Spread, title: str) -> Table:
    """Quantiles over jobs and over GPU-hours."""
    columns = (
        Column("quantile", title, "text"),
        Column("of_jobs", "of jobs", "ratio"),
        Column("of_gpu_hours", "of GPU-hours", "ratio"),
        Column("note", "note", "text", width_px=320),
    )
    rows = [
        (f"p{100 * q:.0f}", jobs.value, hours.value, _note(jobs) or _note(hours))
        for q, jobs, hours in spread.quantiles
    ]
    unknown = f", unknown of {spread.unknown:,}" if spread.unknown else ""
    note = f"{count_text(spread.jobs, 'job')}{unknown}"
    mean = _note(spread.mean) or f"of the {count_text(spread.jobs, 'job')} that tell it"
    return table(columns, [*rows, ("mean", None, spread.mean.value, mean)], note=note)


def places_table(places: Sequence[Places]) -> Table:
    """Hosts and devices by how unlikely their counts are."""
    columns = (
        Column("name", "where", "text", width_px=200),
        Column("kind", "kind", "text"),
        Column("what", "what", "text"),
        Column("count", "count", "count"),
        Column("expected", "by chance", "number", "expected of a place that did as much"),
        Column("times", "count / chance", "number"),
        Column("chance", "chance", "number", "of a count at least as large"),
        Column("is_named", "stands out", "text", "below 5 % of those named are so by chance"),
        Column("exposure", "exposure", "number", "what chance rests on"),
        Column("exposure_unit", "unit", "text"),
        Column("detail", "detail", "text", width_px=280),
    )
    rows = [
        (
            row.name,
            row.kind,
            row.what,
            row.count,
            row.expected,
            row.times,
            row.chance,
            "yes" if row.is_named else "no",
            row.exposure,
            row.exposure_unit,
            row.detail or row.whereabouts,
        )
        for one in places
        for row in one.rows
    ]
    return table(columns, sorted(rows, key=lambda row: (row[7] == "no", row[6], row[0])))


def capacity_table(capacity: Capacity) -> Table:
    """What was there and not used."""
    columns = (
        Column("what", "what", "text", width_px=320),
        Column("text", "how much", "text"),
        Column("value", "value", "number"),
        Column("unit", "unit", "text"),
        Column("note", "note", "text", width_px=420),
    )
    lines = (
        ("paid for, held by no job", capacity.unallocated_gpu_hours),
        ("the same, of all that was paid for", capacity.unallocated),
        ("its cost", capacity.unallocated_usd),
        ("samples with under a tenth of the time in kernels", capacity.idle),
        ("mean share of time with a kernel resident; not efficiency", capacity.utilisation),
    )
    rows = [(what, format_value(m.value, m.unit), m.value, m.unit, _note(m)) for what, m in lines]
    if capacity.devices:
        seen = f"on {capacity.hosts:,} hosts"
        what, count = "devices that told something of themselves", capacity.devices
        rows.append((what, format_count(count), float(count), "devices", seen))
    for row in capacity.inventory:
        what = f"listed in {row.cluster}: {row.gpu_model or 'no device, or not told which'}"
        seen = f"on {row.nodes:,} {'node' if row.nodes == 1 else 'nodes'}"
        rows.append((what, format_count(row.devices), float(row.devices), "devices", seen))
    return table(columns, rows)


def burn_table(view: FleetView) -> Table:
    """Burn rates of error budgets."""
    columns = (
        Column("scope", "of", "text", width_px=160),
        Column("period", "period", "text"),
        Column("goodput_slo_ratio", "objective", "ratio"),
        Column("goodput_ratio", "goodput", "ratio"),
        Column("goodput_ratio_range", "goodput, interval", "text"),
        *(
            Column(
                f"burn_{window.hours}h",
                f"burn, {hours_text(window.hours)}",
                "number",
                f"1 uses the budget up exactly at the end; an alarm at {window.alarm:g}, or where "
                "nine tenths of the time are lost",
            )
            for window in (FAST, SLOW)
        ),
        Column("week_burn", "burn, 7 days", "number"),
        Column("alarm", "alarm", "text"),
        Column("left_usd", "budget left", "usd"),
        Column("note", "note", "text", width_px=320),
    )
    rows = [
        (
            row.scope,
            row.period,
            row.goodput_slo_ratio,
            row.goodput.value,
            format_range(row.goodput),
            *(one.rate.value for one in row.burns),
            row.week_burn.value,
            ", ".join(hours_text(one.window.hours) for one in row.burns if one.rings) or "none",
            None if row.left_usd.sign_is_open else row.left_usd.value,
            _note(row.goodput)
            or (
                error_budget_text(row.left_usd, row.lasts_days) if row.left_usd.sign_is_open else ""
            )
            or next((text for one in row.burns if (text := burn_note(one))), "")
            or _note(row.week_burn),
        )
        for row in view.burn
    ]
    return table(columns, rows)


def _jobs_in(row: GroupRow, state: str) -> int | None:
    """Jobs of one state; None where a source sums jobs."""
    return row.jobs_by_state.get(state, 0 if row.jobs is not None else None)


def _hours_in(row: GroupRow, state: str) -> float | None:
    """GPU-hours of one state: 0 where no job is in it, None where they are unknown."""
    return row.gpu_hours_by_state.get(state, None if row.jobs_by_state.get(state) else 0.0)


def _notes(hours: Measure, usd: Measure) -> str:
    """What limits the hours, and what the cost, where it is another thing."""
    cost = f"cost unknown: {usd.reason}" if usd.value is None else "; ".join(usd.warnings)
    return "; ".join(dict.fromkeys(filter(None, (_note(hours), cost))))


def _note(measure: Measure) -> str:
    """Why a value is missing, or what limits it."""
    return measure.reason or "; ".join(measure.warnings)
