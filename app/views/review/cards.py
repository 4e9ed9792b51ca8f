"""The headline cards of the cost review."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from steptax.app.compute.measure import Measure
from steptax.app.compute.spend.compared import Delta, delta
from steptax.app.compute.stats.exact import int_sum
from steptax.app.compute.stats.rows import Floats
from steptax.app.format import format_measure, format_share, format_usd, format_value
from steptax.app.metrics import check_metrics
from steptax.app.views.review.budget import BudgetView
from steptax.app.views.review.burn_words import error_budget_text
from steptax.app.views.review.jobs import ReviewJobs, unmatched
from steptax.app.views.review.models import Link, ReviewCard, SilentSource, WeekRow
from steptax.app.views.review.money import Review
from steptax.app.views.review.periods import Periods, day_of, figures_of, sparks
from steptax.app.words import count_text

#: Part of the hours beyond which steps tell of all of them.
_NEARLY_ALL = 0.95
#: What grows with the days that it is of.
_AMOUNTS = ("cost_usd", "recoverable_usd")


def review_cards(
    review: Review,
    periods: Periods,
    jobs: ReviewJobs,
    budget: BudgetView | None,
    rows: Sequence[WeekRow],
    silent: Sequence[SilentSource],
) -> tuple[ReviewCard, ...]:
    """One card per question of an executive, in the order in which they are asked."""
    now = figures_of(review, periods.chosen)
    current = now if periods.chosen is not None else figures_of(review, periods.current)
    before = None if periods.reference is None else figures_of(review, periods.reference)
    if silent:
        now, current = (_unknown_since(side, review, periods, silent) for side in (now, current))
    check_metrics(now)

    def card(title: str, name: str, about: str, details: Sequence[str], link: Link) -> ReviewCard:
        return ReviewCard(
            title,
            name,
            now[name],
            about,
            tuple(part for part in details if part),
            _delta(current, before, name, periods),
            sparks(rows, name),
            link,
        )

    first = jobs[0] if len(jobs) and jobs.recover_us.any() else None
    job = Link("job", "Open the job", first.job_id) if first else Link("fleet", "Open the fleet")
    tax_usd = now["straggler_tax_usd"]
    waiting = _most(jobs, jobs.waiting_us())
    learning = _most(jobs, jobs.tokens())
    return (
        card(
            "Spend",
            "cost_usd",
            f"{review.basis}; what was paid for and held by no job is in it where a bill tells",
            (*_unmatched(review, periods), *_budget_details(budget)),
            Link("budget", "Budget and outlook"),
        ),
        card(
            "Goodput",
            "goodput_ratio",
            "hours in steps that count / hours that were paid for",
            _slo_details(budget),
            Link("fleet", "What breaks"),
        ),
        card(
            "Straggler tax",
            "straggler_tax_ratio",
            "waiting for the slowest rank / paid time of recorded steps",
            (
                f"{format_measure(tax_usd)} in the period" if tax_usd.value is not None else "",
                _recorded(jobs) if now["straggler_tax_ratio"].value is not None else "",
            ),
            Link("job", "Who waits for whom", waiting) if waiting else job,
        ),
        card(
            "Cost per 1 B tokens",
            "usd_per_billion_tokens",
            "cost of the jobs whose tokens are known / their tokens",
            (f"of {count_text(int(np.count_nonzero(jobs.tokens())), 'job')}",)
            if now["usd_per_billion_tokens"].value is not None
            else (),
            Link("job", "Largest such job", learning) if learning else Link("whatif", "What-if"),
        ),
        card(
            "Cost per checkpoint kept",
            "usd_per_checkpoint",
            "cost of the jobs whose saves are known / saves that no later step was rolled back "
            "past",
            (),
            Link("whatif", "How often to save"),
        ),
        card(
            "Recoverable now",
            "recoverable_usd",
            "what persistent stragglers cost beyond their peers' median",
            (_running(jobs),),
            job,
        ),
    )


def _delta(
    current: Mapping[str, Measure],
    before: Mapping[str, Measure] | None,
    name: str,
    periods: Periods,
) -> Delta | None:
    if before is None:
        return None
    found = replace(delta(current[name], before[name], periods.reference_name), part=periods.part)
    if name in _AMOUNTS and periods.uneven and found.change.value is not None:
        return replace(found, change=Measure.missing("ratio", periods.uneven))
    return found


def _most(jobs: ReviewJobs, values: Floats) -> str | None:
    """The job with the most of ``values`` [J]; None where there is nothing."""
    if not len(values) or not values.max(initial=0.0) > 0:
        return None
    return str(jobs.review.base.jobs[int(np.argmax(values))]["job_id"])


def _unmatched(review: Review, periods: Periods) -> tuple[str, ...]:
    row = unmatched(review, periods.chosen)
    if row is None:
        return ()
    return (f"{format_measure(row.spend_usd)} of it for {row.name}",)


def _budget_details(view: BudgetView | None) -> tuple[str, ...]:
    if view is None:
        return ()
    if view.budget_usd is None:
        return (f"no budget is set for {view.period.name}",)
    spend = view.spend
    if spend.spent_usd.value is None:
        return (f"{view.period.name}: {spend.spent_usd.reason}",)
    used = f" ({format_measure(spend.used_ratio)})" if spend.used_ratio.value is not None else ""
    said = [
        f"{view.period.name}: {format_value(spend.spent_usd.value, 'USD')} of "
        f"{format_usd(view.budget_usd)}{used}"
    ]
    if spend.at_end_usd.value is None:
        said.append(f"at the end: {format_measure(spend.at_end_usd)}")
    elif spend.over_usd.value is not None:
        word = "over" if spend.over_usd.value > 0 else "under"
        said.append(
            f"at the end {format_measure(spend.at_end_usd)}, "
            f"{format_usd(abs(spend.over_usd.value))} {word}"
        )
    return tuple(said)


def _slo_details(view: BudgetView | None) -> tuple[str, ...]:
    if view is None:
        return ()
    if view.goodput_slo_ratio is None:
        return (f"no objective is set for {view.period.name}",)
    errors = view.errors
    said = [f"objective {format_share(view.goodput_slo_ratio)} in {view.period.name}"]
    if errors.left_usd.value is None:
        # Why stands with the budget below, and where it is for want of goodput, on the card too.
        return (f"{said[0]}; what is left of its error budget is unknown",)
    said.append(error_budget_text(errors.left_usd, errors.lasts_days, errors.allowed_usd))
    return tuple(said)


def _recorded(jobs: ReviewJobs) -> str:
    """Of how much of the GPU-hours the steps tell, where that is not nearly all."""
    recorded, held = float(jobs.paid_us[jobs.places].sum()), int_sum(jobs.held_us[jobs.places])
    if not held or recorded >= _NEARLY_ALL * held:
        return ""
    return f"of the {format_share(recorded / held)} that was recorded in steps"


def _running(jobs: ReviewJobs) -> str:
    """What a day of steps of the jobs that run costs."""
    base = jobs.review.base
    total, known = 0.0, False
    for k in jobs.with_steps:
        facts, price = base.steps[k], jobs.price_of(k)
        if base.jobs[k].get("state") != "running" or price is None:
            continue
        if facts.recoverable_hours_per_day is not None:
            total += facts.recoverable_hours_per_day * float(price)
            known = True
    if not known:
        return ""
    return (
        f"{format_usd(total)} a day of steps in jobs that run"
        if total
        else "nothing in jobs that run"
    )


def _unknown_since(
    values: Mapping[str, Measure],
    review: Review,
    periods: Periods,
    silent: Sequence[SilentSource],
) -> dict[str, Measure]:
    """The figures of a period that a silent source would have told more of."""
    last = None if periods.chosen is None else day_of(periods.chosen.last)
    late = [one for one in silent if last is None or one.since_us // 86_400_000_000 <= last]
    if not late:
        return dict(values)
    said = late[0].since
    return {
        name: Measure.missing(m.unit, late[0].text, level=m.level)
        if m.value is None
        else Measure(
            m.value, m.unit, m.low, m.high, m.level, m.inputs, (*m.warnings, said), m.reason
        )
        for name, m in values.items()
    }
