"""Testing the rank that a straggler card names: the command, what it costs, what it can win."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from decimal import Decimal

from steptax.app.compute.measure import Measure
from steptax.app.views.job.models import Card
from steptax.app.views.job.view import job_view
from steptax.app.views.workspace import Workspace

#: What to run for what the late rank spends its time on.
_BENCHMARKS = {
    "h2d": ("links", "memory"),
    "comm": ("links", "collectives"),
    "input": ("memory",),
    "checkpoint": ("memory",),
}
_COMPUTE = ("gemm", "memory", "launch")
_MINUTES_PER_HOUR = 60


@dataclass(frozen=True)
class SuspectTest:
    """How to test a suspect. ``commands`` is empty where no rank is named; ``reason`` says why."""

    job_id: str
    rank: int | None
    place: str | None
    host: str | None
    commands: tuple[str, ...]
    minutes: float
    node_gpus: int | None
    cost_node_usd: Measure
    """The node's devices for the time, while a spare takes its place."""
    cost_job_usd: Measure
    """All devices of the job for the time, where it must wait."""
    pays_back_hours: Measure
    """Hours of running with the straggler that cost as much as the test with the job waiting."""
    reason: str | None = None


def suspect_test(
    ws: Workspace, job_id: str, minutes: float, price: Decimal | None, lake_words: str = ""
) -> SuspectTest:
    """The test of the rank on the card of ``job_id``; NotFoundError where there is no such job.

    ``lake_words`` ends each printed command, e.g. `` --lake PATH``, so that all find the same lake.
    """
    view = job_view(ws, job_id, price=price)
    card, rank = view.card, view.card.culprit_rank
    places = ws.engine.run("rank_places", job_id=job_id).to_pylist()
    usd = view.price.usd_per_gpu_hour
    if rank is None:
        return _nobody(job_id, minutes, card)
    host = next((p["host"] for p in places if p["rank"] == rank), None)
    on_node = sum(p["host"] == host for p in places) if host else None
    world = ws.job(job_id).get("world_size") or len(places) or None
    unknown_host = "the source does not say on which host the rank runs"
    on_job = _cost(world, minutes, usd, "the number of ranks is not known")
    return SuspectTest(
        job_id,
        rank,
        card.culprit_place,
        host,
        _commands(card, host, job_id, lake_words),
        minutes,
        on_node,
        _cost(on_node, minutes, usd, unknown_host),
        on_job,
        _pays_back(on_job, card.cost_per_hour_usd),
        None if host else unknown_host,
    )


def _nobody(job_id: str, minutes: float, card: Card) -> SuspectTest:
    none = Measure.missing("USD", "no rank is named")
    hours = Measure.missing("h", "no rank is named")
    reason = f"no rank to test: {card.sentence}"
    return SuspectTest(job_id, None, None, None, (), minutes, None, none, none, hours, reason)


def _commands(card: Card, host: str | None, job_id: str, lake_words: str) -> tuple[str, ...]:
    """Run on the node, then judge: against its own earlier run, or the fleet's."""
    names = _BENCHMARKS.get(card.phase or "", _COMPUTE)
    run = f"suspect-{job_id}-{host or f'rank{card.culprit_rank}'}"
    there = f"srun --nodes 1 --nodelist {shlex.quote(host)} --exclusive " if host else ""
    quoted = shlex.quote(run)
    return (
        f"{there}steptax bench {' '.join(names)} --name {quoted}{lake_words}",
        f"steptax bench accept {quoted}{lake_words}",
    )


def _cost(gpus: int | None, minutes: float, usd: Decimal | None, unknown: str) -> Measure:
    """GPUs * minutes / 60 * price."""
    if gpus is None:
        return Measure.missing("USD", unknown)
    if usd is None:
        return Measure.missing("USD", "no price: give --price USD")
    value = gpus * minutes / _MINUTES_PER_HOUR * float(usd)
    return Measure(value, "USD", inputs=(f"{gpus} GPUs, {minutes:g} minutes",))


def _pays_back(cost: Measure, per_hour: Measure) -> Measure:
    if cost.value is None or per_hour.value is None or per_hour.value <= 0:
        reason = cost.reason or per_hour.reason or "the straggler costs nothing"
        return Measure.missing("h", reason)
    return Measure(cost.value / per_hour.value, "h")
