"""What the procurement page shows, shared by all readers; kept by the version of the data."""

from __future__ import annotations

import streamlit as st

from steptax.app.views.bench.view import AcceptanceView, acceptance_view, load_figures, run_ids
from steptax.app.views.kept import Latest, unhurried
from steptax.app.views.pricing.of_job import price_version
from steptax.app.views.pricing.offers import OfferFilter
from steptax.app.views.procurement.choices import Choices, choices
from steptax.app.views.procurement.models import Procurement
from steptax.app.views.procurement.public_results import benchmark_procurement
from steptax.app.views.procurement.view import job_procurement
from steptax.app.views.workspace import Workspace
from steptax.pages import data
from steptax.pages.procurement_choice import Work
from steptax.pages.state import Selection

_for_job: Latest[Procurement] = unhurried(16)


def found() -> Choices:
    """Offers and results of the lake; NotFoundError where there is no lake."""
    ws = data.workspace()
    return _choices(ws, ws.key, _version(ws))


def procurement(work: Work, wanted: OfferFilter, chosen: Selection) -> Procurement:
    """The options for ``work`` under the offers that are ``wanted``."""
    ws = data.workspace()
    if work.benchmark is None:
        assert chosen.job_id is not None
        told = f"{_version(ws)}-{price_version(ws)}"
        job_id, price, note = chosen.job_id, chosen.price, data.price_note(chosen.price)
        return _for_job.get(
            (ws.key, job_id, wanted, price, note, chosen.last_steps, work.own_device, told),
            ws.version(job_id),
            lambda: data.with_spinner(
                "Reading the job",
                lambda: job_procurement(
                    ws,
                    job_id,
                    wanted,
                    own_price=price,
                    price_note=note,
                    last_steps=chosen.last_steps,
                    gpu_model=work.own_device,
                ),
            ),
            is_live=data.is_running(job_id),
        )
    return _for_benchmark(ws, ws.key, work.benchmark, wanted, work.gpus, work.round, _version(ws))


def bench_runs() -> list[str]:
    """Benchmark runs of the lake, the newest first."""
    ws = data.workspace()
    return _bench_runs(ws, ws.key, ws.lake.version("bench_results"))


def acceptance(run: str) -> AcceptanceView:
    """The verdict on every node of ``run``."""
    ws = data.workspace()
    versions = [ws.lake.version(name) for name in ("bench_results", "device_samples", "events")]
    return _acceptance(ws, ws.key, run, "-".join(versions))


def _version(ws: Workspace) -> str:
    names = ("prices", "public_results", "public_runs", "bench_results")
    return "-".join(ws.lake.version(name) for name in names)


@st.cache_resource(max_entries=2, show_spinner=False)
def _choices(_ws: Workspace, root: str, version: str) -> Choices:
    return choices(_ws)


@st.cache_resource(max_entries=16, show_spinner=False)
def _for_benchmark(
    _ws: Workspace,
    root: str,
    benchmark: str,
    wanted: OfferFilter,
    gpus: int | None,
    round_: str | None,
    version: str,
) -> Procurement:
    return benchmark_procurement(_ws, benchmark, wanted, gpus=gpus, round_=round_)


@st.cache_resource(max_entries=2, show_spinner=False)
def _bench_runs(_ws: Workspace, root: str, version: str) -> list[str]:
    return run_ids(load_figures(_ws))


@st.cache_resource(max_entries=8, show_spinner=False)
def _acceptance(_ws: Workspace, root: str, run: str, version: str) -> AcceptanceView:
    return acceptance_view(_ws, run)
