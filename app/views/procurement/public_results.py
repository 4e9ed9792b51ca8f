"""Public training results with today's offers: what a published run would cost, and its scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from steptax.app.compute.bench.public_scores import (
    CAVEAT,
    PublicRun,
    ScalePoint,
    gpu_hours,
    scale_premium,
    train_time,
)
from steptax.app.compute.measure import Measure
from steptax.app.compute.mfu.device_table import Identity, identify
from steptax.app.compute.procurement import Badge, energy_kwh, frontier
from steptax.app.errors import NotFoundError, UserError
from steptax.app.format import format_usd, format_value
from steptax.app.views.pricing.offers import (
    Offer,
    OfferFilter,
    holding,
    load_offers,
    prices_of_device,
)
from steptax.app.views.procurement.models import Option, Procurement
from steptax.app.views.procurement.view import NO_OFFERS, kinds_note, priced_text
from steptax.app.views.workspace import Workspace

#: Measures of an option for a public result, in the order in which they are shown.
RESULT_COLUMNS = ("usd_per_result", "result_min", "gpu_hours_per_result", "energy_kwh")
NO_RESULTS = (
    "no public result is in the lake: steptax ingest mlperf-results FILE, or mlperf-log FOLDER, "
    "stores them"
)


@dataclass(frozen=True)
class PublicResult:
    """One system's time to train one benchmark; ``train_s`` spans its shortest and longest run."""

    round: str
    submitter: str
    system: str
    benchmark: str
    availability: str | None
    device: Identity
    gpu_model: str | None
    gpus: int | None
    software: str | None
    train_s: Measure
    runs: int | None
    source: str

    @property
    def text(self) -> str:
        """Who showed it, with what and when."""
        software = f", {self.software}" if self.software else ""
        return f"{self.submitter} {self.system}, round {self.round}{software}"


def load_results(ws: Workspace) -> tuple[PublicResult, ...]:
    """Every public result: tables as they are, and what single runs give together.

    Of a result that both tell the runs hold: they can be checked.
    """
    found: dict[tuple[str, ...], PublicResult] = {}
    for row in ws.engine.run("public_result_rows").to_pylist():
        time = Measure(row["train_s"], "s", row["shortest_s"], row["longest_s"])
        found[_key(row)] = _result(row, time, row["runs"])
    runs: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in ws.engine.run("public_run_rows").to_pylist():
        runs.setdefault(_key(row), []).append(row)
    for key, rows in runs.items():
        told = [PublicRun(row["status"], row["train_s"]) for row in rows]
        factor = next((r["scaling_factor"] for r in rows if r["scaling_factor"]), None)
        time = train_time(told, factor)
        if time.value is not None or key not in found:
            found[key] = _result(rows[0], time, len(rows))
    return tuple(found[key] for key in sorted(found))


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (row["benchmark"], row["round"], row["submitter"], row["system"])


def _result(row: Mapping[str, Any], time: Measure, runs: int | None) -> PublicResult:
    return PublicResult(
        round=row["round"],
        submitter=row["submitter"],
        system=row["system"],
        benchmark=row["benchmark"],
        availability=row["availability"],
        device=identify(row["gpu_model"]),
        gpu_model=row["gpu_model"],
        gpus=row["gpus"],
        software=row["software"],
        train_s=time,
        runs=runs,
        source=row.get("source_url") or row["source"],
    )


def benchmarks(results: Iterable[PublicResult]) -> dict[str, tuple[int, ...]]:
    """Benchmarks that have results, and the numbers of devices that they were run on."""
    found: dict[str, set[int]] = {}
    for result in results:
        if result.train_s.value is not None and result.gpus is not None:
            found.setdefault(result.benchmark, set()).add(result.gpus)
    return {name: tuple(sorted(gpus)) for name, gpus in sorted(found.items())}


def benchmark_procurement(
    ws: Workspace,
    benchmark: str,
    wanted: OfferFilter,
    *,
    gpus: int | None = None,
    round_: str | None = None,
) -> Procurement:
    """What one run of ``benchmark`` costs on each device: of each its fastest result.

    ``gpus``: only results of so many devices; ``round_``: only of this round. NotFoundError for a
    benchmark that has no result.
    """
    every = load_results(ws)
    chosen = _chosen(every, benchmark, gpus, round_)
    offers = load_offers(ws)
    held = holding(offers, wanted)
    fastest: dict[tuple[str, int], PublicResult] = {}
    for result in chosen:
        name = _device_name(result)
        key = (name, result.gpus or 0)
        best = fastest.get(key)
        if best is None or (result.train_s.value or 0) < (best.train_s.value or 0):
            fastest[key] = result
    options = _ranked([o for result in fastest.values() for o in _options(result, held)])
    return Procurement(
        work=f"{benchmark}" + (f" on {gpus:,} devices" if gpus else ""),
        result="run to the target quality",
        sentence=_sentence(benchmark, options),
        offers=NO_OFFERS if not offers else f"offers: {wanted.text}",
        options=tuple(options),
        notes=(
            *kinds_note(options),
            "of each device and size the fastest result counts; time is of training alone, "
            "without initialisation",
            "dollars, GPU-hours and energy are derived, and no metrics of MLPerf",
        ),
        caveat=CAVEAT,
        columns=RESULT_COLUMNS,
    )


def _chosen(
    results: Sequence[PublicResult], benchmark: str, gpus: int | None, round_: str | None
) -> list[PublicResult]:
    if not results:
        raise NotFoundError("there are no public results", where="lake", hint=NO_RESULTS)
    known = benchmarks(results)
    if not known:
        raise NotFoundError(
            "no benchmark has a result yet",
            where="--benchmark",
            hint="of single runs a result needs at least three: ingest the others too",
        )
    if benchmark not in known:
        raise NotFoundError(
            f"there is no result of {benchmark!r}",
            where="--benchmark",
            hint=f"there are {', '.join(known)}",
        )
    chosen = [
        r
        for r in results
        if r.benchmark == benchmark
        and r.train_s.value is not None
        and r.gpus is not None
        and gpus in (None, r.gpus)
        and round_ in (None, r.round)
    ]
    if not chosen:
        sizes = ", ".join(f"{n:,}" for n in known[benchmark])
        raise UserError(
            f"no result of {benchmark} fits",
            where="--gpus" if round_ is None else "--round",
            hint=f"there are results on {sizes} devices",
        )
    return chosen


def _device_name(result: PublicResult) -> str:
    found = result.device.device
    return found.key if found is not None else result.gpu_model or "unknown device"


def _options(result: PublicResult, offers: Sequence[Offer]) -> list[Option]:
    """One result: an option for each seller, segment, term and region that offers its device."""
    found = result.device.device
    priced = () if found is None else prices_of_device(offers, found.key)
    name = f"{result.gpus or 0:,} × {_device_name(result)}"
    if not priced:
        said = "no offer" if found is not None else result.device.reason or "unknown device"
        return [_option(result, None, said, name=name)]
    return [
        _option(
            result,
            one.offer.usd_per_gpu_hour,
            priced_text(one),
            name=f"{name} · {one.offer.seller}",
            kind=one.offer.kind,
            notes=one.notes,
        )
        for one in priced
    ]


def _option(
    result: PublicResult,
    price: Decimal | None,
    said: str,
    *,
    name: str,
    kind: str = "",
    notes: tuple[str, ...] = (),
) -> Option:
    found = result.device.device
    assert result.gpus is not None
    hours = gpu_hours(result.train_s, result.gpus)
    cost = (
        Measure.missing("USD", said)
        if price is None
        else hours.map(lambda h, at=float(price): h * at, "USD")  # type: ignore[misc]
    )
    return Option(
        name=name,
        device=None if found is None else found.key,
        gpus=result.gpus,
        price=price,
        price_text=said,
        measures={
            "usd_per_result": cost,
            "result_min": result.train_s.map(lambda s: s / 60, "min"),
            "gpu_hours_per_result": hours,
            "energy_kwh": energy_kwh(hours, None if found is None else found.tdp_w),
        },
        badge=Badge.PUBLISHED.value,
        source=f"{result.text}: {result.source}",
        notes=notes,
        kind=kind,
    )


def _ranked(options: Sequence[Option]) -> list[Option]:
    points = {
        o.name: (o.measures["usd_per_result"].value, o.measures["result_min"].value or 0.0)
        for o in options
    }
    priced = {name: (cost, time) for name, (cost, time) in points.items() if cost is not None}
    best = frontier(priced)
    marked = [replace(o, on_frontier=o.name in best) for o in options]
    return sorted(marked, key=lambda o: (*priced.get(o.name, (float("inf"), 0.0)), o.name))


def _sentence(benchmark: str, options: Sequence[Option]) -> str:
    """The cheapest run, and what the cheapest hour of the same kind of offer costs."""
    every = [o for o in options if o.measures["usd_per_result"].value is not None]
    if not every:
        return f"No offer fits a device that ran {benchmark}, so no run has a cost."
    # Prices of several kinds are not alike: of those the one that prices the most devices speaks.
    kinds = Counter(kind for kind, _ in {(o.kind, o.device) for o in every})
    kind = max(kinds, key=lambda name: (kinds[name], name))
    priced = [o for o in every if o.kind == kind]
    among = f" among offers that are {kind}" if len(kinds) > 1 else ""
    best = priced[0]
    cost = best.measures["usd_per_result"].value
    assert cost is not None
    text = f"For {benchmark} {best.name} costs {format_usd(cost)} per run"
    cheapest_hour = min(priced, key=lambda o: o.price or Decimal(0))
    if cheapest_hour is best or cheapest_hour.price is None or best.price is None:
        return f"{text}, the least of {len(priced)} options with a price{among}."
    other = cheapest_hour.measures["usd_per_result"].value
    assert other is not None
    return (
        f"{text}; the cheapest hour{among}, {cheapest_hour.name} at "
        f"{format_usd(cheapest_hour.price)}, costs {format_usd(other)}: "
        f"{format_value(1 - cost / other, 'ratio')} less per run at "
        f"{format_value(float(best.price / cheapest_hour.price) - 1, 'ratio')} more per hour."
    )


def scale_of(
    results: Sequence[PublicResult], benchmark: str, key: str, round_: str | None = None
) -> tuple[ScalePoint, ...]:
    """What more devices of one kind cost for the same result; empty below two sizes."""
    points = [
        (r.gpus, r.train_s.value, r.text)
        for r in _chosen(results, benchmark, None, round_)
        if r.gpus is not None
        and r.train_s.value is not None
        and r.device.device is not None
        and r.device.device.key == key
    ]
    found = scale_premium(points)
    return found if len(found) > 1 else ()
