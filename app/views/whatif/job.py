"""What a job's own records say about the inputs of the calculators.

What was not recorded is missing, with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from steptax.app.compute.calculators.registry import CALCULATORS
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.rows import Floats
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.arrival import arrivals
from steptax.app.compute.straggler.result import Kind
from steptax.app.compute.straggler.steps import StepMatrix, without_inconsistent
from steptax.app.errors import UserError
from steptax.app.views.bill.view import job_bill
from steptax.app.views.fleet.jobs import devices_lost
from steptax.app.views.job.learning import learning_inputs, loss_record
from steptax.app.views.job.load import LoadedJob, load_job
from steptax.app.views.models import Price
from steptax.app.views.pricing.given import price_view
from steptax.app.views.pricing.of_job import job_price
from steptax.app.views.whatif.events import FailureRecord, failure_record
from steptax.app.views.whatif.facts import Facts
from steptax.app.views.whatif.model_inputs import (
    device_a,
    equal_parts,
    mfu_inputs,
)
from steptax.app.views.whatif.models import Known, Numbers, Repair, Word
from steptax.app.views.workspace import Workspace

#: Where nobody says what a GPU-hour costs.
_NO_PRICE = price_view(None)
#: Reports of a job that are kept for extrapolation.
_CELLS = 40_000
_MIN_STEPS = 20
#: Steps without a pause below which their mean is chance.
_FREE_STEPS = 10
#: Share of the variance above which a spread is called lasting.
_LASTING_RATIO = 0.5
NO_TRACE = "step times cannot tell it; a per-operation trace would"
NO_COLLECTIVES = "sizes and times of single collectives are not in step records"


@dataclass(frozen=True, eq=False)
class JobInputs:
    """The inputs that one job gives, by calculator and parameter, and what they rest on."""

    job_id: str
    basis: str
    """For people, e.g. ``job demo-1, last 500 steps``."""
    inputs: Mapping[str, Mapping[str, Known]]
    work_us: Floats | None
    """[S, R] work of the used ranks in the newest steps; None where it cannot be told."""
    nodes: tuple[str, ...] | None
    """Host of each of these ranks; None unless all are known."""
    level: Level
    price: Price = _NO_PRICE
    """What a GPU-hour of the job costs, by the rule of every page."""
    last_steps: int | None = None
    """The window that was asked for; None: all steps."""
    asked_usd: Decimal | None = None
    """The reader's price per GPU-hour, which a bill may have set aside."""
    repairs: tuple[Repair, ...] = ()
    """What repairing its ranks returns, step by step."""

    def of(self, calculator: str) -> Mapping[str, Known]:
        """What is known of the inputs of one calculator."""
        return self.inputs.get(calculator, {})


def job_inputs(
    ws: Workspace,
    job_id: str,
    *,
    last_steps: int | None = 500,
    price: Decimal | None = None,
    price_note: str | None = None,
) -> JobInputs:
    """The inputs that the last ``last_steps`` steps (None: all) of ``job_id`` give.

    ``price`` is the reader's, in USD per GPU-hour, and ``price_note`` says whose it is. Raises
    NotFoundError for an unknown job or one without steps.
    """
    loaded = load_job(ws, ws.job(job_id), last_steps=last_steps)
    result = analyse_stragglers(loaded.matrix)
    sound, _ = without_inconsistent(loaded.matrix)
    part = sound.select(result.coverage.step_places, result.coverage.rank_places)
    arrived = arrivals(part, result.basis)
    told = result.basis.unknown is None and result.ranks is not None
    used = job_price(ws, job_id, price, price_note)
    usd = used.usd_per_gpu_hour
    facts = Facts(loaded, result, part, arrived, told, usd)
    losses = loss_record(ws, job_id, price=usd).last(last_steps)
    steps = len(loaded.matrix.steps)
    bill = job_bill(ws, loaded, usd, devices_lost(ws, loaded.job))
    return JobInputs(
        job_id=job_id,
        basis=f"job {job_id}, {'all' if loaded.window.is_all else 'last'} {steps:,} steps",
        inputs=_inputs(facts, failure_record(ws, loaded), bill.metrics)
        | {"learning-velocity": learning_inputs(losses)},
        work_us=_newest(arrived.work_us) if told else None,
        nodes=_nodes(loaded, part),
        level=result.basis.level,
        price=used,
        last_steps=last_steps,
        asked_usd=price,
        repairs=facts.repairs(),
    )


def learning_job_inputs(
    ws: Workspace, job_id: str, *, last_steps: int | None = None, price: Decimal | None = None
) -> JobInputs:
    """What a job says of its learning alone: for that its losses do, without per-rank steps.

    Raises NotFoundError for an unknown job.
    """
    used = job_price(ws, job_id, price)
    record = loss_record(ws, job_id, price=used.usd_per_gpu_hour).last(last_steps)
    return JobInputs(
        job_id=job_id,
        basis=f"job {job_id}, {record.basis}",
        inputs={"learning-velocity": learning_inputs(record)},
        work_us=None,
        nodes=None,
        level=Level.LOG,
        price=used,
        last_steps=last_steps,
        asked_usd=price,
    )


def _newest(work_us: Floats) -> Floats:
    """A copy of the newest steps: of a large job they say as much as all, and are kept."""
    steps = max(_MIN_STEPS, _CELLS // work_us.shape[1])
    return work_us[-steps:].copy()


def _inputs(
    facts: Facts, failures: FailureRecord, bill: Mapping[str, Measure]
) -> dict[str, dict[str, Known]]:
    """Every input that a job can speak about, by calculator."""
    parts = facts.parts_ms()
    ranks = facts.ranks
    step = facts.ms(facts.result.step_us)
    spread = _spread(facts)
    mfu = mfu_inputs(facts, step)
    return {
        "kernel-speedup": {
            "compute_ms": parts["compute"],
            "comm_ms": parts["comm"],
            "wait_ms": parts["wait"],
            "other_ms": parts["other"],
            "hidden_comm_ms": facts.none("ms", NO_TRACE),
            "wait_follows_ratio": facts.none("ratio", NO_TRACE),
        },
        "remove-worst": _worst(facts, step),
        "backup-workers": {"workers": ranks, "cv_ratio": spread["cv"]},
        "checkpoint-interval": _checkpoint(facts, step)
        | {"mtbf_s": failures.mtbf_s, "restart_s": failures.restart_s},
        "failures": {
            "gpus": ranks,
            "observed_gpus": ranks,
            "observed_failures": failures.count,
            "observed_h": failures.hours,
        },
        "expected-max": {
            "ranks": ranks,
            "cv_ratio": spread["cv"],
            "mean_ms": spread["mean"],
            # What was measured speaks for so many ranks, however many are asked about.
            "observed_ranks": ranks,
        },
        "local-sgd": {
            "ranks": ranks,
            "cv_ratio": spread["transient"],
            "persistent_ratio": spread["lasting"],
            "mean_ms": spread["mean"],
            "comm_ms": parts["comm"],
        },
        "gc-sync": _gc(facts) | {"ranks": ranks},
        "sequence-balance": {
            "lengths_tokens": Numbers(
                None, "tokens", "only sums over the sequences of a step are recorded"
            ),
            "ranks": facts.count(float(dp)) if (dp := facts.loaded.job.get("dp_size")) else ranks,
            "equal_parts_tokens": equal_parts(facts),
        },
        "hot-spares": {"failures_per_h": failures.per_h, "nodes": _node_count(facts)},
        "break-even": device_a(facts, mfu, bill),
        "mfu": mfu,
        "any-slow": {
            "ranks": ranks,
            # A log tells one step time of all ranks, so it shows none of them.
            "observed_ranks": facts.none("", facts.why)
            if facts.loaded.matrix.of_job
            else facts.count(float(facts.result.coverage.ranks_used)),
            "observed_slow": _flagged(facts),
        },
        "train-time": _train_time(facts, mfu),
        "waste": {"slowdown": facts.result.slowdown_ratio, "gpus": ranks},
        "stragglar": {
            "ranks": ranks,
            "size_bytes": facts.none("bytes", NO_COLLECTIVES),
            "delay_ms": _delay(facts),
        },
        "busbw": {"ranks": ranks, "size_bytes": facts.none("bytes", NO_COLLECTIVES)},
        "collective-time": {
            "ranks": ranks,
            "nodes": _node_count(facts),
            "size_bytes": facts.none("bytes", NO_COLLECTIVES),
        },
    }


def _train_time(facts: Facts, mfu: Mapping[str, Known]) -> dict[str, Known]:
    """The job's own speed; its shape only in full parameters, as the closed forms are of a GPT."""
    given = {
        name: known.text if isinstance(known, Word) else known
        for name, known in mfu.items()
        if not isinstance(known, Numbers)
    }
    try:
        speed = CALCULATORS["mfu"].run(given).measures()["tflops_per_device"]
    except UserError as problem:
        speed = facts.none("TFLOP/s", problem.message)
    return {
        "devices": facts.ranks,
        "tflops": speed,
        "params": mfu["params"],
    }


def _spread(facts: Facts) -> dict[str, Measure]:
    """Mean work, and its spread over ranks: all of it, the passing part, the lasting excess."""
    parts = facts.spread()
    if isinstance(parts, str):
        gone = facts.none("ratio", parts)
        return {"cv": gone, "transient": gone, "lasting": gone, "mean": facts.none("ms", parts)}
    own = np.nanmean(facts.arrived.work_us, axis=0)
    mean_us = float(own.mean())
    if not mean_us > 0:
        gone = facts.none("ratio", "the mean work is zero")
        return {"cv": gone, "transient": gone, "lasting": gone, "mean": replace(gone, unit="ms")}

    def ratio(us: float, *warnings: str) -> Measure:
        basis = facts.result.basis
        return Measure(
            us / mean_us, "ratio", level=facts.level, inputs=basis.inputs, warnings=warnings
        )

    said = []
    if parts.persistent_us**2 > _LASTING_RATIO * parts.idiosyncratic_us**2:
        said.append(
            "most of the spread between these ranks is lasting, as of a rank that is always slow; "
            "the formula takes it for chance"
        )
    return {
        "cv": ratio(parts.idiosyncratic_us, *said),
        "transient": ratio(parts.transient_us),
        "lasting": ratio(float(own.max()) - mean_us),
        "mean": facts.ms(Measure(mean_us, "us", level=facts.level)),
    }


def _worst(facts: Facts, step: Measure) -> dict[str, Known]:
    """Mean work of each rank in ms, to the microsecond, and the rest of the mean step."""
    if facts.unknown is not None:
        return {
            "times_ms": Numbers(None, "ms", facts.unknown),
            "worst": facts.none("", facts.unknown),
            "other_ms": facts.none("ms", facts.unknown),
        }
    times = tuple(round(float(us) / 1000.0, 3) for us in np.nanmean(facts.arrived.work_us, axis=0))
    return {
        "times_ms": Numbers(times, "ms"),
        "worst": _flagged(facts),
        "other_ms": step.map(lambda ms: max(0.0, ms - max(times)), "ms"),
    }


def _flagged(facts: Facts) -> Measure:
    """How many ranks are slow for good."""
    verdict = facts.result.verdict
    if verdict.kind is Kind.UNTELLABLE:
        return facts.none("", verdict.text.rstrip("."))
    return facts.count(float(len(verdict.ranks)) if verdict.kind is Kind.WORKER else 0.0)


def _delay(facts: Facts) -> Measure:
    table, culprit = facts.result.ranks, facts.result.verdict.culprit
    if table is None or culprit is None:
        return facts.none("ms", facts.result.verdict.text.rstrip("."))
    place = int(np.flatnonzero(table.ranks == culprit)[0])
    ends = [float(v[place]) for v in (table.excess_low_us, table.excess_high_us)]
    low, high = ends if np.isfinite(ends).all() else (None, None)
    return facts.ms(Measure(float(table.excess_us[place]), "us", low, high, level=facts.level))


def _checkpoint(facts: Facts, step: Measure) -> dict[str, Known]:
    found = facts.pauses("checkpoint")
    if isinstance(found, str):
        gone = facts.none("s", found)
        return {"checkpoint_s": gone, "interval_s": gone}
    longest, _ = found
    saves = np.flatnonzero(longest > 0)
    cost = Measure(float(longest[saves].mean()) / 1e6, "s", level=facts.level)
    if len(saves) < 2 or step.value is None or cost.value is None:
        return {
            "checkpoint_s": cost,
            "interval_s": facts.none("s", "the window has fewer than two saves"),
        }
    # Useful time between two saves: the steps without what the saves among them took.
    between = float(facts.arrived.step_us[saves[0] + 1 : saves[-1] + 1].sum()) / 1e6
    useful = between / (len(saves) - 1) - cost.value
    return {"checkpoint_s": cost, "interval_s": Measure(useful, "s", level=facts.level)}


def _gc(facts: Facts) -> dict[str, Known]:
    found = facts.pauses("gc")
    if isinstance(found, str):
        return {
            "pause_ms": facts.none("ms", found),
            "every_steps": facts.none("steps", found),
            "step_ms": facts.none("ms", found),
        }
    longest, cells = found
    paused = np.nan_to_num(cells) > 0
    pause = float(cells[paused].mean()) / 1000.0
    free = facts.arrived.step_us[longest == 0]
    return {
        "pause_ms": Measure(pause, "ms", level=facts.level),
        "every_steps": facts.count(float(max(1, round(cells.size / paused.sum()))), "steps"),
        "step_ms": Measure(float(free.mean()) / 1000.0, "ms", level=facts.level)
        if len(free) >= _FREE_STEPS
        else facts.none("ms", f"fewer than {_FREE_STEPS} steps of the window are without a pause"),
    }


def _nodes(loaded: LoadedJob, part: StepMatrix) -> tuple[str, ...] | None:
    hosts = [loaded.places.get(int(rank), {}).get("host") for rank in part.ranks]
    return tuple(map(str, hosts)) if hosts and all(hosts) else None


def _node_count(facts: Facts) -> Measure:
    hosts = {place.get("host") for place in facts.loaded.places.values()}
    if not hosts or None in hosts:
        return facts.none("", "the hosts of the ranks are not all known")
    return facts.count(float(len(hosts)))
