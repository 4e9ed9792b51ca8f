"""The choices of the procurement page, each kept in the URL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

import streamlit as st

from steptax.app.views.pricing.offers import OfferFilter
from steptax.app.views.procurement.choices import Choices
from steptax.pages import state

WORK: Final = "work"
BENCHMARK: Final = "benchmark"
GPUS: Final = "gpus"
ROUND: Final = "round"
OWN_DEVICE: Final = "own_device"
PROVIDER: Final = "provider"
SEGMENT: Final = "segment"
TERM: Final = "term"
REGION: Final = "region"
DAY: Final = "on"
SCALE_DEVICE: Final = "scale_device"
PRICED_DEVICE: Final = "priced_device"
RUN: Final = "run"

OWN_JOB: Final = "Your job"
PUBLIC: Final = "Public benchmark"


@dataclass(frozen=True)
class Work:
    """What is to be bought for. ``benchmark`` is None for the job of the strip."""

    benchmark: str | None
    gpus: int | None = None
    round: str | None = None
    own_device: str | None = None


def work(found: Choices, job_id: str | None) -> Work | None:
    """A job or a public benchmark; None where there is neither."""
    kinds = ([OWN_JOB] if job_id else []) + ([PUBLIC] if found.benchmarks else [])
    if not kinds:
        return None
    with st.container(horizontal=True, key="procure_work", vertical_alignment="bottom"):
        kind = st.segmented_control(
            "For",
            kinds,
            default=kinds[0],
            required=True,
            key=WORK,
            bind="query-params",
        )
        if kind == PUBLIC:
            benchmark = st.selectbox(
                "Benchmark",
                list(found.benchmarks),
                key=BENCHMARK,
                bind="query-params",
                width=220,
            )
            sizes = [str(n) for n in found.benchmarks[benchmark]]
            gpus = _optional("Devices", sizes, GPUS, "any number", 140)
            round_ = _optional("Round", found.rounds, ROUND, "all rounds", 140)
            return Work(benchmark, None if gpus is None else int(gpus), round_)
        own = _optional(
            "Device of the job", found.known_devices, OWN_DEVICE, "as its record says", 220
        )
        return Work(None, own_device=own)


def offers(found: Choices) -> OfferFilter:
    """Which offers count."""
    with st.container(horizontal=True, key="procure_offers", vertical_alignment="bottom"):
        segment = _optional("Segment", found.segments, SEGMENT, "all segments", 170)
        provider = _optional("Provider", found.providers, PROVIDER, "all providers", 190)
        term = _optional("Term", found.terms, TERM, "all terms", 150)
        region = _optional("Region", found.regions, REGION, "all regions", 170)
        day = _optional("Prices as of", found.days, DAY, "the newest", 150)
    on = None if day is None else date.fromisoformat(day)
    return OfferFilter(provider, segment, term, region, on)


def device(title: str, keys: Sequence[str], key: str) -> str:
    """One of ``keys``, kept in the URL."""
    chosen: str = st.selectbox(title, list(keys), key=key, bind="query-params", width=220)
    return chosen


def command(chosen: Work, wanted: OfferFilter, selection: state.Selection) -> tuple[str, ...]:
    """The same answer in a terminal, as words."""
    if chosen.benchmark is None:
        words = ["steptax", "procure", "job", "--job", str(selection.job_id)]
        if chosen.own_device is not None:
            words += ["--gpu-model", chosen.own_device]
        if selection.price is not None:
            words += ["--price", f"{selection.price:f}"]
    else:
        words = ["steptax", "procure", "benchmark", "--benchmark", chosen.benchmark]
        words += ["--gpus", str(chosen.gpus)] if chosen.gpus is not None else []
        words += ["--round", chosen.round] if chosen.round is not None else []
    for flag, value in (
        ("--provider", wanted.provider),
        ("--segment", wanted.segment),
        ("--term", wanted.term),
        ("--region", wanted.region),
        ("--on", wanted.on),
    ):
        words += [flag, str(value)] if value is not None else []
    return tuple(words)


def _optional(
    title: str, options: Sequence[str], key: str, otherwise: str, width: int
) -> str | None:
    chosen: str | None = st.selectbox(
        title,
        list(options),
        index=None,
        key=key,
        bind="query-params",
        placeholder=otherwise,
        disabled=not options,
        width=width,
    )
    return chosen
