"""A calculator's question put to the recorded operations of a job, on the What-if page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.connectors.base import Options

PAGE = "../pages/whatif.py"
JOB = "../pages/job.py"
Show = Callable[..., AppTest]


@pytest.fixture
def traced(lake: Lake, fill: Callable[..., None], shared: Callable[[str], Path]) -> None:
    """A lake with the trace of a job in which one worker is slow."""
    options = Options(job_id="AR", meta=shared("ops/meta-AR.yaml"))
    path = shared("ops/trace-AR.parquet")
    fill(lake, "AR trace-AR", lambda made: ingest_file(made, "ops", path, options))


def numbers(at: AppTest) -> dict[str, str]:
    return {m.label.replace("\\", ""): m.value.replace("\\", "") for m in at.metric}


def link(at: AppTest) -> dict[str, str]:
    """What the link to the job page carries."""
    (text,) = (m.value for m in at.markdown if m.value.startswith("[Open it on the job page]"))
    address = urlparse(text.partition("(")[2].rstrip(")"))
    assert address.fragment == "what-if"
    return {key: values[0] for key, values in parse_qs(address.query).items()}


@pytest.mark.usefixtures("traced")
def test_a_faster_kernel_is_simulated_beside_its_band(
    show: Show, text_of: Callable[[AppTest], str]
) -> None:
    at = show(
        PAGE,
        job="AR",
        price="2.0",
        calc="kernel-speedup",
        from_job="true",
        on_trace="true",
        **{"kernel-speedup.speedup": "2"},
    )
    assert not at.exception
    assert not at.error
    told = numbers(at)
    low, high = (float(end.rstrip("×")) for end in told["Step speed-up"].split(" to "))
    simulated = float(told["Step speed-up, simulated"].rstrip("×"))
    # The slow rank computes too, so nearly all of the step shrinks: the upper end of the band.
    assert low < 1.1 < 1.9 < simulated <= high
    assert "error of the simulation 0.7 %" in text_of(at)
    # Communication that is not under compute comes from the trace; its phases cannot tell it.
    exposed_ms = float(at.number_input(key="kernel-speedup.comm_ms").proto.placeholder)
    assert exposed_ms == pytest.approx(789.1, abs=0.5)
    carried = link(at)
    assert carried["fix.kernel.factor"] == "2"
    there = show(JOB, **carried)
    assert not there.exception
    assert "$1,508/day" in numbers(there).values()


@pytest.mark.usefixtures("traced")
def test_a_share_of_a_kernel_is_applied_as_what_is_left_of_it(show: Show) -> None:
    at = show(
        PAGE,
        job="AR",
        calc="kernel-speedup",
        on_trace="true",
        **{
            "kernel-speedup.speedup": "4",
            "kernel-speedup.accelerated_ratio": "0.5",
            "kernel-speedup.compute_ms": "100",
            "kernel-speedup.comm_ms": "30",
            "kernel-speedup.wait_ms": "15",
        },
    )
    assert not at.exception
    # Half of it four times as fast: 1 / (0.5 + 0.5 / 4).
    assert link(at)["fix.kernel.factor"] == "1.6"


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    ("calc", "title", "value"),
    [("remove-worst", "Recovered", "49.4 %"), ("waste", "Waste", "49.3 %")],
)
def test_other_calculators_stand_beside_the_simulation(
    show: Show, calc: str, title: str, value: str
) -> None:
    at = show(PAGE, job="AR", price="2.0", calc=calc, from_job="true", on_trace="true")
    assert not at.exception
    told = numbers(at)
    assert told[f"{title}, simulated"] == value
    assert told[f"{title}, calculated"].endswith(" %")
    assert link(at)["job"] == "AR"


@pytest.mark.usefixtures("traced")
def test_the_slowdown_that_the_trace_gives_is_a_starting_value(show: Show) -> None:
    at = show(PAGE, job="AR", calc="waste", from_job="true")
    # The published slowdown, not the 2.08 that per-rank times give.
    shown = at.number_input(key="waste.slowdown").proto.placeholder
    assert float(shown) == pytest.approx(1.97305, abs=1e-4)


@pytest.mark.usefixtures("traced")
def test_only_what_can_be_simulated_is_offered(show: Show, add: Callable[..., Any]) -> None:
    add("worker")
    offered = show(PAGE, job="AR", calc="waste")
    assert [t.label for t in offered.toggle if t.key == "on_trace"] == ["Apply to this trace"]
    for job, calc in (("AR", "failures"), ("worker", "waste")):
        at = show(PAGE, job=job, calc=calc, on_trace="true")
        assert not at.exception
        assert not [t for t in at.toggle if t.key == "on_trace"]
        assert not [m for m in at.metric if "simulated" in m.label]
