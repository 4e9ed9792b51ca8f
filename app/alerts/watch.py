"""One round of alerts: read, judge by the rules, and deliver what is due."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from steptax.app.alerts.channels import Failure, send
from steptax.app.alerts.records import Message
from steptax.app.alerts.rules import READINGS, Email, Rule, Rules, Webhook
from steptax.app.alerts.store import AlertStore
from steptax.app.compute.alerting import US_PER_S, Change, Limit, advance
from steptax.app.compute.measure import Measure
from steptax.app.format import format_value
from steptax.app.metrics import METRICS
from steptax.app.views.alerting import Reading

#: Waiting after the first failed attempt; it doubles to the longest.
FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 900.0
#: Attempts after which a message is given up: about a day.
MOST_ATTEMPTS = 100

Sender = Callable[[Webhook | Email, Message], Failure | None]


@dataclass(frozen=True)
class Round:
    """What one round did."""

    jobs: int
    scopes: int
    """With an objective, whose error budgets were looked at."""
    fired: int
    cleared: int
    sent: int
    failed: int
    problems: tuple[str, ...]


def one_round(
    store: AlertStore,
    rules: Rules,
    found: Iterable[Reading],
    at_us: int,
    *,
    sender: Sender = send,
    clock: Callable[[], int] | None = None,
) -> Round:
    """Judge ``found`` by ``rules`` at ``at_us``, then deliver every message that is due.

    ``clock`` gives the present moment while messages are sent, which can take a while; without
    one it stands still at ``at_us``.
    """
    told = list(found)
    changes = [change for reading in told for change in _judge(store, rules, reading, at_us)]
    changes += _gone(store, rules, told, at_us)
    store.told_late(at_us, {rule.name: tuple(rules.channels_of(rule)) for rule in rules.rules})
    sent, failed = deliver(store, rules, clock or (lambda: at_us), sender=sender)
    problems = tuple(f"{r.job_id}: {r.problem}" for r in told if r.problem is not None)
    scopes = sum(reading.is_scope for reading in told)
    return Round(
        len(told) - scopes,
        scopes,
        changes.count(Change.FIRED),
        changes.count(Change.CLEARED),
        sent,
        failed,
        problems,
    )


def _judge(store: AlertStore, rules: Rules, reading: Reading, at_us: int) -> list[Change]:
    changes = []
    for rule in rules.rules:
        is_watched = rule.watches(reading.job_id, is_scope=reading.is_scope)
        if not is_watched or reading.problem is not None:
            continue
        measure = reading.values.get(rule.metric)
        value = None if measure is None else measure.value
        limit = rule.limit(reading.alarms.get(rule.metric))
        with store.change():
            before = store.standing(rule.name, reading.job_id)
            after, change = advance(limit, before, value, at_us)
            if after != before:
                store.keep(rule.name, reading.job_id, after)
            if change is Change.FIRED and value is not None and measure is not None:
                store.fired(
                    rule=rule.name,
                    job=reading.job_id,
                    severity=rule.severity,
                    metric=rule.metric,
                    value=value,
                    text=said(rule, limit, measure, reading.sentence),
                    at_us=at_us,
                    channels=tuple(rules.channels_of(rule)),
                )
            elif change is Change.CLEARED:
                store.cleared(rule=rule.name, job=reading.job_id, at_us=at_us)
        if change is not None:
            changes.append(change)
    return changes


def _gone(store: AlertStore, rules: Rules, told: Sequence[Reading], at_us: int) -> list[Change]:
    """Alerts of jobs that run no more, and of rules that watch them no more, are over."""
    known = {rule.name: rule for rule in rules.rules}
    there = {(reading.job_id, reading.is_scope) for reading in told}
    over = [
        (rule, name)
        for rule, name in store.open_standings()
        if (own := known.get(rule)) is None
        or (name, own.is_of_scopes) not in there
        or not own.watches(name, is_scope=own.is_of_scopes)
    ]
    for rule, job in over:
        with store.change():
            before = store.standing(rule, job)
            if before is None or not before.is_open:  # another process was first
                continue
            store.cleared(rule=rule, job=job, at_us=at_us)
            store.forget(rule, job)
    return [Change.CLEARED] * len(over)


def said(rule: Rule, limit: Limit, measure: Measure, sentence: str) -> str:
    """What a message says: the value, its limit, and what the card of the job says."""
    title = METRICS[rule.metric].title if rule.metric in METRICS else READINGS[rule.metric]
    side = "above" if limit.above else "below"
    assert measure.value is not None
    text = (
        f"{title}: {format_value(measure.value, measure.unit)}, {side} "
        f"{format_value(limit.threshold, measure.unit)} for {limit.for_s:g} s."
    )
    return f"{text} {sentence}".strip()


def deliver(
    store: AlertStore, rules: Rules, clock: Callable[[], int], *, sender: Sender = send
) -> tuple[int, int]:
    """Send every message that is due; (sent, failed)."""
    sent = failed = 0
    # What failed in this round waits for the next, however long the others take.
    begun_us = clock()
    while (message := store.claim(begun_us, clock())) is not None:
        mute = store.muted(message.rule, message.job, clock())
        if mute is not None and message.change is Change.FIRED:
            store.silence(message, mute)
            continue
        channel = rules.channels.get(message.channel)
        failure = (
            Failure("the channel is no longer in the rules", is_final=True)
            if channel is None
            else sender(channel, message)
        )
        if failure is None:
            store.sent(message.key, clock())
            sent += 1
            continue
        failed += 1
        is_last = failure.is_final or message.attempts >= MOST_ATTEMPTS
        next_us = None if is_last else clock() + _wait_us(message.attempts)
        store.failed(message.key, failure.reason, next_us)
    return sent, failed


def _wait_us(attempts: int) -> int:
    wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(attempts - 1, 20))
    return int(wait_s * US_PER_S)
