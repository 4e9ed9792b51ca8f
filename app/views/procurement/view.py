"""What a job would cost on other devices: its own step, today's offers, and what both rest on."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from steptax.app.compute.measure import Measure
from steptax.app.compute.mfu.device_table import Device, canonical_dtype, device, identify
from steptax.app.compute.mfu.kernel_model import StepParts
from steptax.app.compute.procurement import (
    Profile,
    break_even_usd,
    cost_swings,
    energy_kwh,
    frontier,
    project,
    straggler_adjusted_usd,
)
from steptax.app.errors import UserError
from steptax.app.format import format_usd, format_value
from steptax.app.views.bench.view import load_figures
from steptax.app.views.models import Price
from steptax.app.views.pricing.of_job import job_price
from steptax.app.views.pricing.offers import (
    Offer,
    OfferFilter,
    Priced,
    holding,
    load_offers,
    prices_of_device,
)
from steptax.app.views.procurement.models import Option, Procurement
from steptax.app.views.whatif.job import JobInputs, job_inputs
from steptax.app.views.workspace import Workspace

#: Measures of an option for a job, in the order in which they are shown.
JOB_COLUMNS = (
    "usd_per_result",
    "result_min",
    "speedup",
    "break_even_usd_per_gpu_hour",
    "straggler_adjusted_usd_per_gpu_hour",
    "usd_per_pflop_hour",
    "delivered_pflops",
    "step_ms",
    "wait_ratio",
    "energy_kwh",
)
RESULT_STEPS = 1000
NO_OFFERS = (
    "no offer is in the lake: steptax ingest prices FILE stores dated offers of your providers"
)


def job_procurement(
    ws: Workspace,
    job_id: str,
    wanted: OfferFilter,
    *,
    own_price: Decimal | None = None,
    price_note: str | None = None,
    result_steps: int = RESULT_STEPS,
    last_steps: int | None = 500,
    gpu_model: str | None = None,
) -> Procurement:
    """``job_id`` on every device that an offer of ``wanted`` is for, as many as it has now.

    ``own_price``: what a reader says that a GPU-hour of the job costs, with ``price_note``. What it
    costs now is what it costs on every page (``job_price``); where that is not known, offers of its
    device stand in, of those that are ``wanted``. ``gpu_model`` says which device the job
    ran on where its record does not. NotFoundError for an unknown job; UserError where its step
    cannot be split or its device is not known.
    """
    cost = job_price(ws, job_id, own_price, price_note)
    inputs = job_inputs(ws, job_id, last_steps=last_steps, price=own_price)
    profile = profile_of(ws.job(job_id), inputs, gpu_model)
    offers = load_offers(ws)
    held = holding(offers, wanted)
    measured = measured_rates(ws, profile.dtype)
    keys = {profile.device.key: None} | dict.fromkeys(
        key for offer in held for key in offer.devices
    )
    own_now = cost.usd_per_gpu_hour or _own_offer(profile, held)
    ask = _Asked(profile, cost, own_now, result_steps, measured)
    options = _ranked([option for key in keys for option in _options(ask, device(key), held)])
    best = next((o for o in options if not o.is_own and o.price is not None), None)
    swings = (
        cost_swings(profile, device(best.device), result_steps, best.price, measured)
        if best is not None and best.device is not None and best.price is not None
        else ()
    )
    return Procurement(
        work=f"{inputs.basis}, {profile.gpus:,} × {profile.device.key}, {profile.dtype}",
        result=f"{result_steps:,} steps",
        sentence=_sentence(options, f"{result_steps:,} steps"),
        offers=NO_OFFERS if not offers else f"offers: {wanted.text}",
        options=tuple(options),
        tornado=swings,
        tornado_of=None if best is None else best.name,
        notes=_notes(profile, options),
        columns=JOB_COLUMNS,
    )


def profile_of(
    job: Mapping[str, object], inputs: JobInputs, gpu_model: str | None = None
) -> Profile:
    """What procurement needs to know of a job; UserError names what its records lack."""
    job_id = inputs.job_id
    found = identify(gpu_model or _text(job.get("gpu_model")))
    if found.device is None:
        raise UserError(
            f"the device of the job is not known: {found.reason}",
            where=job_id,
            hint="name it: --gpu-model H100-SXM, or ingest the job with --gpu-model",
        )
    dtype = canonical_dtype(_text(job.get("dtype"))) or "bf16"
    known = {name: inputs.of("kernel-speedup").get(f"{name}_ms") for name in _PARTS}
    parts = {name: m.value for name, m in known.items() if isinstance(m, Measure)}
    for name in _PARTS:
        measure = known[name]
        if parts.get(name) is None:
            why = measure.reason if isinstance(measure, Measure) else "it was not recorded"
            raise UserError(
                f"the {name} part of a step is not known: {why}",
                where=job_id,
                hint="record compute and communication of every rank",
            )
    split = {name: value for name, value in parts.items() if value is not None}
    nodes = inputs.of("hot-spares").get("nodes")
    used = inputs.of("break-even")
    gpus = _measure(used.get("a_gpus"), "")
    if gpus.value is None:
        raise UserError(
            f"the number of devices is not known: {gpus.reason}",
            where=job_id,
            hint="ingest the job with --world-size",
        )
    return Profile(
        job_id=job_id,
        device=found.device,
        dtype=dtype,
        gpus=round(gpus.value),
        nodes=round(nodes.value)
        if isinstance(nodes, Measure) and nodes.value is not None
        else None,
        parts=StepParts(split["compute"], split["comm"], split["wait"], split["other"]),
        goodput_ratio=_measure(used.get("a_goodput_ratio"), "ratio"),
        mfu_ratio=_measure(used.get("a_mfu_ratio"), "ratio"),
    )


def measured_rates(ws: Workspace, dtype: str) -> dict[str, float]:
    """Best matrix-multiply rate of your own devices in TFLOP/s, by key: the median over devices."""
    best: dict[str, dict[tuple[str, str], float]] = {}
    for figure in load_figures(ws):
        found = identify(figure.device_model).device
        if figure.test != "gemm" or figure.unit != "TFLOP/s" or found is None:
            continue
        if canonical_dtype(figure.dtype) == dtype:
            rates = best.setdefault(found.key, {})
            rates[figure.where] = max(rates.get(figure.where, 0.0), figure.value)
    return {key: statistics.median(rates.values()) for key, rates in best.items()}


_PARTS = ("compute", "comm", "wait", "other")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _measure(known: object, unit: str) -> Measure:
    return known if isinstance(known, Measure) else Measure.missing(unit, "it was not recorded")


@dataclass(frozen=True)
class _Asked:
    """What all options of one question share."""

    profile: Profile
    own_price: Price
    own_now: Decimal | None
    """What the job costs now, else the cheapest offer of its device."""
    result_steps: int
    measured: Mapping[str, float]


def _own_offer(profile: Profile, offers: Sequence[Offer]) -> Decimal | None:
    priced = prices_of_device(offers, profile.device.key)
    return priced[0].offer.usd_per_gpu_hour if priced else None


def _options(asked: _Asked, other: Device, offers: Sequence[Offer]) -> list[Option]:
    """One device: an option for each seller, segment, term and region; the own one as it is now."""
    is_own = other.key == asked.profile.device.key
    own = asked.own_price.usd_per_gpu_hour
    if is_own and own is not None:
        said = f"what the job costs now: {asked.own_price.basis}"
        return [_option(asked, other, own, said, name=other.key)]
    priced = prices_of_device(offers, other.key)
    if not priced:
        return [_option(asked, other, None, "no offer", name=other.key)]
    return [
        _option(
            asked,
            other,
            one.offer.usd_per_gpu_hour,
            priced_text(one),
            name=f"{other.key} · {one.offer.seller}",
            kind=one.offer.kind,
            notes=one.notes,
        )
        for one in priced
    ]


def _option(
    asked: _Asked,
    other: Device,
    price: Decimal | None,
    said: str,
    *,
    name: str,
    kind: str = "",
    notes: Sequence[str] = (),
) -> Option:
    """One device at one price."""
    profile = asked.profile
    is_own = other.key == profile.device.key
    found = project(profile, other, asked.result_steps, asked.measured)
    if found is None:
        why = f"nothing tells how fast {other.key} computes in {profile.dtype}"
        none = {column: Measure.missing("", why) for column in JOB_COLUMNS}
        return Option(
            name, other.key, profile.gpus, price, said, none, "spec", other.source, is_own,
            kind=kind,
        )  # fmt: skip
    hours = found.gpu_hours_per_result
    measures = {
        "usd_per_result": _usd(hours, price, "USD"),
        "result_min": hours.map(lambda h: h / profile.gpus * 60, "min"),
        "speedup": found.speedup,
        "break_even_usd_per_gpu_hour": break_even_usd(asked.own_now, found.speedup),
        "straggler_adjusted_usd_per_gpu_hour": Measure.missing("USD/GPU-hour", said)
        if price is None
        else straggler_adjusted_usd(price, found.wait_ratio),
        "usd_per_pflop_hour": _per_pflop(found.delivered_pflops, price, said),
        "delivered_pflops": found.delivered_pflops,
        "step_ms": found.step_ms,
        "wait_ratio": found.wait_ratio,
        "energy_kwh": energy_kwh(hours, other.tdp_w),
    }
    own_notes = [*notes, *hours.warnings]
    if not is_own:
        own_notes.append(f"communication: {found.comm.source}")
    return Option(
        name=name,
        device=other.key,
        gpus=profile.gpus,
        price=price,
        price_text=said,
        measures=measures,
        badge=found.badge.value,
        source=found.compute.source,
        is_own=is_own,
        notes=tuple(own_notes),
        kind=kind,
    )


def priced_text(priced: Priced) -> str:
    """Who offers it, and how far the same seller's other offers lie."""
    said = priced.offer.text
    if priced.count > 1:
        said += f"; the cheapest of {priced.count}, {format_usd(priced.low)} to "
        said += format_usd(priced.high)
    return said


def kinds_note(options: Sequence[Option]) -> tuple[str, ...]:
    """A note where offers of several kinds stand beside each other."""
    kinds = sorted({o.kind for o in options if o.kind})
    if len(kinds) < 2:
        return ()
    return (
        f"offers of several kinds stand beside each other ({'; '.join(kinds)}): choose a segment "
        "and a term to hold like against like",
    )


def _usd(hours: Measure, price: Decimal | None, unit: str) -> Measure:
    if price is None:
        return Measure.missing(unit, "there is no price for it")
    at = float(price)
    return hours.map(lambda h: h * at, unit)


def _per_pflop(delivered: Measure, price: Decimal | None, said: str) -> Measure:
    unit = "USD/PFLOP-hour"
    if price is None:
        return Measure.missing(unit, said)
    at = float(price)
    return delivered.map(lambda pflops: at / pflops, unit)


def _ranked(options: Sequence[Option]) -> list[Option]:
    """Best cost first, then those without a price; the frontier of cost and time is marked."""
    points = {}
    for option in options:
        cost, time = (option.measures[name].value for name in ("usd_per_result", "result_min"))
        if cost is not None and time is not None:
            points[option.name] = (cost, time)
    best = frontier(points)
    marked = [replace(option, on_frontier=option.name in best) for option in options]
    return sorted(marked, key=lambda o: (*points.get(o.name, (float("inf"), 0.0)), o.name))


def _sentence(options: Sequence[Option], result: str) -> str:
    """The cheapest result against the job's own, of one kind of offer where the own has one."""
    priced = [o for o in options if o.measures["usd_per_result"].value is not None]
    if not priced:
        return "No option has a price, so none has a cost: ingest offers, or give a price."
    own = next((o for o in priced if o.is_own), None)
    alike = [o for o in priced if own is None or not own.kind or o.is_own or o.kind == own.kind]
    best = next((o for o in alike if not o.is_own), None)
    if own is None or best is None:
        first = alike[0]
        return f"For this job {first.name} costs {_cost(first)} per {result}."
    even = best.measures["break_even_usd_per_gpu_hour"]
    until = f"; it breaks even at {format_value(even.value, even.unit)}" if even.value else ""
    cost, own_cost = _usd_of(best), _usd_of(own)
    if cost >= own_cost:
        return (
            f"For this job {own.name} costs {_cost(own)} per {result}, less than every other "
            f"option of its kind; the next, {best.name}, costs {_cost(best)}{until}."
        )
    assert best.price is not None
    assert own.price is not None
    dearer = float(best.price / own.price) - 1
    word = "more" if dearer >= 0 else "less"
    return (
        f"For this job {best.name} costs {_cost(best)} per {result} against {_cost(own)} on "
        f"{own.name}: {format_value(1 - cost / own_cost, 'ratio')} less per result at "
        f"{format_value(abs(dearer), 'ratio')} {word} per hour{until}."
    )


def _usd_of(option: Option) -> float:
    value = option.measures["usd_per_result"].value
    assert value is not None
    return value


def _cost(option: Option) -> str:
    return format_usd(_usd_of(option))


def _notes(profile: Profile, options: Sequence[Option]) -> tuple[str, ...]:
    notes = [*kinds_note(options)]
    notes += [
        "every option has as many devices as the job has now, and loses as much between steps: "
        "a result holds that too, unlike the steps that two jobs are compared by",
        "bands are ends of what is not known: memory or matrix speed, links or none, waits that "
        "shrink with compute or stay",
        "energy is at the power that the makers state, of the devices alone",
    ]
    if profile.nodes is None:
        notes.append("how many nodes the job has is not known: it is taken to cross nodes")
    return tuple(notes)
