"""The fleet: what breaks most and what it costs, how often, where, and what is not used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.bill.waterfall_groups import unstated
from steptax.app.compute.fleet.failures import FailureRate, failure_rate
from steptax.app.compute.fleet.slow import (
    FailSlowRow,
    causes,
    fail_slow_rows,
    share_of_slow,
    spread,
)
from steptax.app.compute.fleet.states import (
    FAILED,
    OPEN_STATES,
    UNKNOWN_STATE,
    GroupRow,
    JobFact,
    StateRow,
    by_group,
    by_size,
    by_state,
    failure_shares,
    hours_of,
)
from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.spoken import spoken_list
from steptax.app.format import format_measure
from steptax.app.lake import one_look
from steptax.app.memory import building
from steptax.app.metrics import check_metrics
from steptax.app.views.fleet.bases import bases
from steptax.app.views.fleet.capacity import burning, burns, capacity
from steptax.app.views.fleet.facts import Facts, fleet_ettr, fleet_facts
from steptax.app.views.fleet.filter import LABELS, FleetFilter, check_filter
from steptax.app.views.fleet.models import Capacity, FleetView, LossRow, PlaceRow, Places
from steptax.app.views.fleet.places import repeat_offenders
from steptax.app.views.fleet.price import FleetPrice, fleet_price
from steptax.app.views.fleet.stated_months import NO_MONTH, in_time
from steptax.app.views.models import Price
from steptax.app.views.pricing.given import price_view
from steptax.app.views.workspace import Workspace
from steptax.app.words import count_text, rows_text

WASTE_QUANTILES = (0.5, 0.9, 0.99)
ETTR_QUANTILES = (0.1, 0.5, 0.9)
#: Buckets of a bill that interruptions cost.
_LOST_WORK = ("lost_work", "recovery")
#: A job and GPU-hours of it.
_Hours = tuple[str, float | None]


@one_look()
@building()
def fleet_view(
    ws: Workspace,
    *,
    price: Decimal | None = None,
    price_note: str | None = None,
    now_us: int | None = None,
    only: FleetFilter | None = None,
) -> FleetView:
    """The fleet of a lake; ``now_us`` is the moment that error budgets are held against.

    ``only`` says which jobs are looked at. What nobody held, Xids of devices and error budgets are
    of no job: they stay those of the whole lake. NotFoundError for a value that no job has.
    """
    only = only or FleetFilter()
    every = fleet_facts(ws)
    check_filter(every, only)
    facts = only.chosen(every)
    members = _members(facts)
    groups, states = _groups(members), by_state(facts.jobs)
    prices = fleet_price(ws, price_view(price, price_note))
    cost = prices.shown
    hours = hours_of(facts.jobs)
    shares = failure_shares(facts.jobs)
    rate = failure_rate(facts.jobs)
    slow_rows = fail_slow_rows(facts.slow)
    pairs = list(facts.ettr.values())
    ettr = spread(pairs, ETTR_QUANTILES)
    waste = spread([(f.waste, f.gpu_hours) for f in facts.slow], WASTE_QUANTILES)
    speeds = sum(fact.slowdown.value is not None for fact in facts.slow)
    unused = capacity(ws, price)
    places = repeat_offenders(ws, facts)
    burn, burn_reason = burns(ws, price, now_us)
    usd = prices.usd(hours, _held(facts.jobs))
    losses = _losses(facts, hours, unused, slow_rows[-1], prices)
    metrics = {
        "failed_jobs_ratio": shares.by_jobs,
        "failed_gpu_hours_ratio": shares.by_gpu_hours,
        "mtbf_gpu_hours": rate.mtbf_gpu_hours,
        "fail_slow_jobs_ratio": slow_rows[-1].share,
        "slow_jobs_ratio": share_of_slow(facts.slow, by_hours=False),
        "ettr_ratio": fleet_ettr(facts),
        "unallocated_ratio": unused.unallocated,
    }
    return FleetView(
        sentence=_sentence(facts.jobs, hours, losses, places, usd, is_part=not only.is_empty),
        coverage=_coverage(facts, every, cost),
        only=only.text,
        price=cost,
        jobs=None if _sums(facts.jobs) else len(facts.jobs),
        rows=len(facts.jobs),
        sums=_sums(facts.jobs),
        gpu_hours=hours,
        usd=usd,
        metrics=check_metrics(metrics),
        bases=bases(facts.jobs, metrics, hours, rate, slow_rows[-1], speeds, ettr),
        losses=losses,
        states=states,
        sizes=by_size(facts.jobs),
        groups=groups,
        costs={label: _costs(rows, members[label], prices) for label, rows in groups.items()}
        | {"state": _costs(states, ((f.state, f) for f in facts.jobs), prices)},
        rate=rate,
        fail_slow=slow_rows,
        causes=causes(facts.slow),
        slow_gpu_hours=share_of_slow(facts.slow, by_hours=True),
        waste=waste,
        ettr=ettr,
        ettr_values=tuple(
            (job_id, m.value) for job_id, (m, _) in facts.ettr.items() if m.value is not None
        ),
        waste_values=tuple(
            (f.job_id, f.waste.value) for f in facts.slow if f.waste.value is not None
        ),
        places=places,
        capacity=unused,
        burn=burn,
        burn_reason=burn_reason,
        warnings=(
            *_warnings(facts, rate, hours),
            *burning(burn),
        ),
    )


def _members(facts: Facts) -> dict[str, list[tuple[str, JobFact]]]:
    """Each job with its group, by each label that any has, and by months that held devices."""
    found = {}
    for name in LABELS:
        if any(row.get(name) for row in facts.rows):
            none = unstated(name)
            names = [row.get(name) or none for row in facts.rows]
            found[name] = list(zip(names, facts.jobs, strict=True))
    if any(month != NO_MONTH for own in facts.months for month, _ in own):
        found["month"] = [
            (month, fact if len(own) == 1 else replace(fact, gpu_hours=hours))
            for fact, own in zip(facts.jobs, facts.months, strict=True)
            for month, hours in own
        ]
    return found


def _groups(members: Mapping[str, list[tuple[str, JobFact]]]) -> dict[str, tuple[GroupRow, ...]]:
    """The jobs by each label, and by the months in which they held devices."""
    found = {
        label: by_group([fact for _, fact in own], [name for name, _ in own])
        for label, own in members.items()
    }
    if "month" in found:
        found["month"] = tuple(sorted(found["month"], key=lambda row: in_time(row.name)))
    return found


def _costs(
    rows: Sequence[GroupRow | StateRow], own: Iterable[tuple[str, JobFact]], prices: FleetPrice
) -> dict[str, Measure]:
    """What the jobs of each row cost, each at its own price; ``own`` are they with its name."""
    held: dict[str, list[_Hours]] = {}
    if prices.of_job is not None:
        for name, fact in own:
            held.setdefault(name, []).append((fact.job_id, fact.gpu_hours))
    return {row.name: prices.usd(row.gpu_hours, held.get(row.name, ())) for row in rows}


def _held(jobs: Sequence[JobFact]) -> list[_Hours]:
    return [(fact.job_id, fact.gpu_hours) for fact in jobs]


def _losses(
    facts: Facts, hours: Measure, unused: Capacity, slow: FailSlowRow, prices: FleetPrice
) -> tuple[LossRow, ...]:
    """What breaks, costliest first, what is not known after it; last what nobody held."""
    found: list[tuple[str, int | None, Measure, str, list[_Hours]]] = []
    unknown = sum(f.state == UNKNOWN_STATE for f in facts.jobs)
    for state, what, note in (
        (FAILED, "jobs that failed", "what they held; what of it was saved is unknown"),
        (
            "timeout",
            "jobs cut off by their time limit",
            "what they held; what was saved is unknown",
        ),
    ):
        own = [f for f in facts.jobs if f.state == state]
        if unknown:
            note += f"; at least, for the state of {count_text(unknown, 'job')} is unknown"
        if own or unknown < len(facts.jobs):
            lost = hours_of(own) if own else Measure(0.0, "GPU-hours", level=Level.LOG)
            count = None if _sums(own) else len(own)
            found.append((what, count, lost, note, _held(own)))
        else:
            none = Measure.missing("GPU-hours", "the state of no job is known")
            found.append((what, None, none, note, []))
    found.append(_redone(facts))
    wait = [(f.job_id, f.waiting_gpu_hours) for f in facts.slow if f.waiting_gpu_hours is not None]
    waiting = Measure.missing("GPU-hours", "no job has per-rank steps that tell it")
    if wait:
        lost_hours = sum(lost for _, lost in wait)
        waiting = Measure(lost_hours, "GPU-hours", level=Level.STEP_TIME)
    note = "of the other ranks, in recorded steps"
    found.append(("waiting for the slowest rank", len(wait) or None, waiting, note, [*wait]))
    note = "what would return without these episodes: waiting, and what slow ranks take longer"
    episodes = [(f.job_id, e.lost_gpu_hours) for f in facts.slow for e in f.episodes]
    affected = slow.affected if slow.jobs else None
    found.append(("fail-slow", affected, slow.lost_gpu_hours, note, [*episodes]))
    idle = LossRow(
        "devices that nobody held",
        0,
        unused.unallocated_gpu_hours,
        unused.unallocated,
        unused.unallocated_usd,
        "from the provider's bill, of all that was paid for",
        is_broken=False,
    )
    rows = [
        idle,
        *(
            LossRow(what, jobs, lost, _part(lost, hours), usd, "; ".join([note, *usd.warnings]))
            for what, jobs, lost, note, own in found
            for usd in [prices.usd(lost, own)]
        ),
    ]
    # What nobody held did not break, and the sentence does not call it so: it has its own line.
    return tuple(
        sorted(
            rows,
            key=lambda r: (not r.is_broken, r.gpu_hours.value is None, -(r.gpu_hours.value or 0)),
        )
    )


def _redone(facts: Facts) -> tuple[str, int | None, Measure, str, list[_Hours]]:
    """Work that was lost and recovery, in the bills of jobs with steps or events."""
    what, note = "work lost to restarts, and recovery", "from events and steps of each job"
    told = {
        name: b.made for name, b in facts.bills.items() if b.made is not None and b.made.has_steps
    }
    if not told:
        reason = "no job has steps with real times, so that lost work is unknown"
        return what, None, Measure.missing("GPU-hours", reason), note, []
    us = {n: sum(float(bill.gpu_us(b)) for b in _LOST_WORK) for n, bill in told.items()}
    lost = list(us.values())
    silent = len(facts.jobs) - len(told)
    if silent and not any(lost):
        reason = (
            f"none in {count_text(len(told), 'job')} with steps; of "
            f"{count_text(silent, 'job')} it is unknown"
        )
        return what, None, Measure.missing("GPU-hours", reason), note, []
    if silent:
        note += f"; at least, for of {count_text(silent, 'job')} it is unknown"
    hours = Measure(sum(lost) / GPU_US_PER_HOUR, "GPU-hours", level=Level.LOG)
    own: list[_Hours] = [(name, one / GPU_US_PER_HOUR) for name, one in us.items()]
    return what, sum(one > 0 for one in lost), hours, note, own


def _part(lost: Measure, whole: Measure) -> Measure:
    if lost.value is None:
        return Measure.missing("ratio", lost.reason or "")
    if not whole.value:
        return Measure.missing("ratio", whole.reason or "no job held a GPU for any time")
    return Ratio(min(lost.value / whole.value, 1.0), level=lost.level)


def _sentence(
    jobs: Sequence[JobFact],
    hours: Measure,
    losses: Sequence[LossRow],
    places: Sequence[Places],
    usd: Measure,
    *,
    is_part: bool,
) -> str:
    if not jobs:
        return "No job fits the choice." if is_part else "There are no jobs yet."
    held = format_measure(hours) if hours.value is not None else "an unknown number of GPU-hours"
    paid = f", {_least(usd)}" if usd.value is not None else ""
    states = sum(f.state != UNKNOWN_STATE for f in jobs)
    every = rows_text(len(jobs), _sums(jobs))
    first = next((row for row in losses if row.gpu_hours.value and row.is_broken), None)
    text = ""
    if not states:
        text = f"Which jobs failed is unknown: no source tells how any of {every} "
        text += f"({held}{paid}) ended. "
        if first is None:
            return text + _where(places)
        text += "Of what is known, most breaks"
    elif first is None:
        failed = sum(f.state == FAILED for f in jobs)
        if not failed:
            text = f"No job is known to have failed of {every} ({held}{paid})."
            return f"{text} {_where(places)}"
        text = f"{failed:,} of {every} failed, and as far as is known none of them "
        return text + f"held a GPU: of all {held} nothing is known to be lost."
    else:
        text = "What breaks most"
    how = "" if first.jobs is None else f" ({first.jobs:,} of {every})"
    how = f" (in {every})" if first.jobs is None and _sums(jobs) else how
    worth = "" if first.usd.value is None else f" = {_least(first.usd)}"
    verb = " by" if not states else ":"
    text += f"{verb} {first.what}{how}, at {format_measure(first.gpu_hours)}{worth}, "
    text += f"{format_measure(first.share)} of all {held}. "
    return text + _idle(losses, first) + _where(places)


def _idle(losses: Sequence[LossRow], broken: LossRow) -> str:
    """Devices that nobody held, where they cost more than what is ``broken``."""
    idle = next(row for row in losses if not row.is_broken)
    if (idle.gpu_hours.value or 0.0) <= (broken.gpu_hours.value or 0.0):
        return ""
    worth = "" if idle.usd.value is None else f" = {_least(idle.usd)}"
    part = "" if idle.share.value is None else f", {format_measure(idle.share)} of all paid"
    text = f"{format_measure(idle.gpu_hours)}{worth}{part}"
    return f"Devices that nobody held cost more: {text}. "


def _sums(jobs: Iterable[JobFact]) -> int:
    """How many of them are no jobs, but sum what many used."""
    return sum(fact.is_sum for fact in jobs)


def _least(usd: Measure) -> str:
    """A sum of costs, of which not all may be known."""
    return f"{'at least ' if usd.warnings else ''}{format_measure(usd)}"


def _where(places: Sequence[Places]) -> str:
    """Which host or device to look at first."""
    named = [row for one in places for row in one.rows if row.is_named]
    if named:
        worst = min(named, key=lambda row: row.chance)
        said = [_place_text(row) for row in named if row.name == worst.name]
        where = (
            f"{worst.whereabouts} ({worst.name})" if worst.host else f"{worst.kind} {worst.name}"
        )
        return f"Look first at {where}: {spoken_list(said)}."
    looked = [one for one in places if one.reason is None]
    if looked:
        return "No host or device stands out beyond chance."
    return "Where it breaks is unknown: no source tells on which hosts jobs ran."


def _place_text(row: PlaceRow) -> str:
    return f"{row.count:,} {row.what} where chance gives {row.expected:.3g}"


def _coverage(facts: Facts, every: Facts, cost: Price) -> str:
    known = sum(f.state != UNKNOWN_STATE for f in facts.jobs)
    timed = sum(f.gpu_hours is not None for f in facts.jobs)
    total = len(facts.jobs)
    shown = rows_text(len(every.jobs), _sums(every.jobs))
    if total < len(every.jobs):
        shown = f"{total:,} of {shown}"
    return (
        f"{shown}: the state of {known:,} is known, the GPU-hours of {timed:,}, "
        f"steps of {len(facts.slow):,} · {cost.basis}"
    )


def _warnings(facts: Facts, rate: FailureRate, hours: Measure) -> tuple[str, ...]:
    said = list(hours.warnings)
    unknown = sum(f.state == UNKNOWN_STATE for f in facts.jobs)
    if unknown:
        said.append(
            f"the final state is unknown for {unknown:,} of {count_text(len(facts.jobs), 'job')}"
        )
    running = sum(f.state in OPEN_STATES for f in facts.jobs)
    if 2 * running > len(facts.jobs):
        said.append(
            f"{running:,} of {len(facts.jobs):,} jobs have not ended and are in no share of "
            "failures: what ends early is over-represented there"
        )
    evicted = sum(f.evictions for f in facts.jobs)
    if evicted:
        said.append(f"{evicted:,} evictions made room for others and count as no failure")
    if rate.failures:
        said.append("a failure of the user's own program counts like one of a device")
    reasons = Counter(f.reason for f in facts.slow if f.reason)
    said += [
        f"{count_text(n, 'job')} cannot tell fail-slow: {why}" for why, n in reasons.most_common(2)
    ]
    return tuple(said)
