"""What-if without a browser: state from the URL, the numbers, and what a job cannot say."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.format import format_value
from steptax.app.views.whatif.view import calculator_titles
from steptax.pages import whatif_state
from tests.page_run import open_page

ROOT = Path(__file__).resolve().parents[2]
WHATIF = "../pages/whatif.py"

Add = Callable[..., None]
Figures = Callable[[AppTest], list[dict[str, Any]]]
Text = Callable[[AppTest], str]
Run = Callable[..., Any]


def opened(**parameters: str) -> AppTest:
    """The page as a link opens it, with these parameters in the URL."""
    return open_page(WHATIF, **parameters)


def typed(calculator: str, **values: str) -> dict[str, str]:
    return {"calc": calculator} | {f"{calculator}.{k}": v for k, v in values.items()}


def by_name(figures: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {figure["id"].rsplit("-", 1)[-1]: figure for figure in figures}


def command(at: AppTest) -> list[str]:
    return shlex.split(next(c.value for c in at.code if c.value.startswith("steptax calc")))


def link(at: AppTest) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(at.code[-1].value).query))


def captions(at: AppTest) -> list[str]:
    return [c.value.replace("\\", "") for c in at.caption]


@pytest.mark.usefixtures("lake")
def test_without_any_job_it_opens_on_the_kernel(text_of: Text) -> None:
    at = opened()
    assert not at.exception
    assert not at.error
    said = text_of(at)
    assert "232× on this kernel gives 1.00× to 4.75× on the step" in said
    assert at.toggle(key="from_job").disabled
    assert at.metric[0].label == "Step speed\\-up"
    assert at.metric[0].value.replace("\\", "") == "1.00× to 4.75×"


def test_the_numbers_are_those_of_the_command(
    add: Add, text_of: Text, steptax: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("worker")
    at = opened(from_job="false")
    said = text_of(at)
    for text in ("145 ms", "45.4 ms", "69.0 %", "0.9 %", "10.3 %", "33.0 %", "3.19×", "3.22×"):
        assert text in said, text
    words = command(at)
    assert " ".join(words) == (
        "steptax calc kernel-speedup --compute-ms 100 --comm-ms 30 --wait-ms 15 --speedup 232"
    )
    printed = steptax(*words[1:])
    assert printed["sentence"] in said
    for measure in printed["measures"].values():
        assert format_value(measure["value"], measure["unit"]) in said


@pytest.mark.parametrize(
    ("more", "speedup"),
    [
        ({"wait_follows_ratio": "1", "hidden_comm_ms": "0"}, "4.75×"),
        ({"wait_follows_ratio": "0", "hidden_comm_ms": "40"}, "1.70×"),
    ],
)
@pytest.mark.usefixtures("lake")
def test_state_comes_from_the_link(
    text_of: Text, steptax: Run, more: dict[str, str], speedup: str
) -> None:
    at = opened(**typed("kernel-speedup", **more))
    assert not at.exception
    assert speedup in text_of(at)
    assert captions(at).count("you typed it") == 2
    assert at.expander[0].proto.expanded
    printed = steptax(*command(at)[1:])["measures"]["step_speedup"]
    assert format_value(printed["value"], "x") == speedup


@pytest.mark.usefixtures("lake")
def test_a_link_is_the_state_again(text_of: Text) -> None:
    at = opened()
    at.number_input(key="kernel-speedup.speedup").set_value(12.5)
    at.number_input(key="kernel-speedup.wait_ms").set_value(40.0).run()
    assert not at.exception
    carried = link(at)
    assert carried == typed("kernel-speedup", speedup="12.5", wait_ms="40") | {"from_job": "false"}
    again = opened(**carried)
    assert text_of(again) == text_of(at)
    assert command(again) == command(at)


@pytest.mark.usefixtures("lake")
def test_words_and_lists_come_from_the_link_too(text_of: Text) -> None:
    at = opened(**typed("remove-worst", times_ms="100,100,130", worst="1"))
    assert "from 130 ms to 100 ms" in text_of(at)
    at = opened(**typed("busbw", collective="all_gather", ranks="4", busbw_gb_per_s="300"))
    assert at.selectbox(key="busbw.collective").value == "all_gather"
    assert "300 GB/s on the bus is 400 GB/s" in text_of(at)
    assert at.number_input(key="busbw.algbw_gb_per_s").proto.placeholder == "not given"


@pytest.mark.usefixtures("lake")
def test_calculators_do_not_share_inputs(text_of: Text) -> None:
    at = opened(**typed("expected-max", ranks="64"))
    assert "The slowest of 64" in text_of(at)
    at.selectbox(key=whatif_state.CHOICE).set_value("local-sgd").run()
    assert not at.exception
    assert at.query_params["calc"] == "local-sgd"
    assert at.number_input(key="local-sgd.ranks").value is None
    assert at.number_input(key="local-sgd.ranks").proto.placeholder == "1,024"


@pytest.mark.parametrize("name", ["kernel", "", "Waste"])
@pytest.mark.usefixtures("lake")
def test_an_unknown_calculator_in_a_link_is_ignored(name: str) -> None:
    at = opened(calc=name)
    assert not at.exception
    assert at.selectbox(key=whatif_state.CHOICE).value == "kernel-speedup"


@pytest.mark.usefixtures("lake")
def test_utilisation_is_there_at_once_by_every_convention(text_of: Text, figures: Figures) -> None:
    at = opened(calc="mfu")
    assert not at.exception
    assert at.metric[0].value.replace("\\", "") == "40.4 %"
    said = text_of(at)
    for text in ("MFU is 40.4 % by megatron of 989.5", "39.0 %", "42.3 %", "50.4 %", "406B"):
        assert text in said, text
    assert "tornado" in by_name(figures(at))


@pytest.mark.parametrize("name", list(calculator_titles()))
def test_every_calculator_is_drawn(add: Add, figures: Figures, name: str) -> None:
    add("worker")
    for parameters in ({"calc": name}, {"calc": name, "from_job": "true", "price": "2.0"}):
        at = opened(**parameters)
        assert not at.exception, (name, parameters)
        assert not at.error, (name, [e.value for e in at.error])
        assert at.metric or "Type what is not known" in at.info[0].value
        for figure in figures(at):
            assert figure["config"]["showSendToCloud"] is False
            assert figure["bytes"] < 100_000
    at = opened(calc=name, from_job="false")
    assert at.metric
    assert [c for c in captions(at) if c == "example, type your own"]


def test_of_a_job_with_a_straggler_it_opens_on_what_its_repair_returns(
    add: Add, text_of: Text
) -> None:
    add("worker")
    at = opened()
    assert not at.exception
    assert at.selectbox(key="calc_choice").value == "remove-worst"
    assert "## Replacing the slowest of 8 ranks takes the step from" in text_of(at)
    assert "This is by each rank's mean over these steps. Step by step, with rank 5" in text_of(at)
    assert not [c for c in captions(at) if "example" in c]
    # Nothing of the job is asked where its numbers are not wanted, or where nobody is slow.
    assert opened(from_job="false").selectbox(key="calc_choice").value == "kernel-speedup"
    add("level", phases=False)
    assert opened(job="level").selectbox(key="calc_choice").value == "kernel-speedup"


def test_a_job_fills_the_inputs(add: Add, text_of: Text, figures: Figures) -> None:
    add("worker")
    at = opened(calc="kernel-speedup")
    assert at.toggle(key="from_job").value, "a job with steps fills the inputs unasked"
    assert not at.exception
    held = captions(at)
    assert held.count("measured: job worker, all 60 steps") == 4
    assert at.number_input(key="kernel-speedup.compute_ms").proto.placeholder.startswith("10")
    assert "L2 per-rank phases" in text_of(at)
    assert "--other-ms" in command(at)
    assert set(by_name(figures(at))) == {"composition", "speedup", "scale", "tornado"}
    assert link(at)["from_job"] == "true"
    assert link(at)["job"] == "worker"
    assert link(at)["window"] == "500"


def test_typing_over_a_measurement(add: Add) -> None:
    add("worker")
    at = opened(**{"calc": "kernel-speedup", "from_job": "true", "kernel-speedup.wait_ms": "5"})
    held = captions(at)
    assert held.count("measured: job worker, all 60 steps") == 3
    assert held.count("you typed it") == 1
    words = command(at)
    assert words[words.index("--wait-ms") + 1] == "5"


def test_what_the_job_cannot_say_has_its_reason(add: Add, text_of: Text) -> None:
    add("bare", phases=False)
    at = opened(from_job="true", job="bare")
    assert not at.exception
    assert not at.metric
    said = at.info[0].value.replace("\\", "")
    assert "**Compute per step, ms** · not measured: every rank reports the same step" in said
    at.number_input(key="kernel-speedup.compute_ms").set_value(100.0)
    at.number_input(key="kernel-speedup.comm_ms").set_value(30.0)
    at.number_input(key="kernel-speedup.wait_ms").set_value(15.0).run()
    assert "1.00× to 4.75×" in text_of(at)


def test_a_job_without_steps_leaves_the_example(add: Add, text_of: Text) -> None:
    usage = "job_id,gpus,start,end\nacct-1,16,2026-11-01T00:00:00Z,2026-11-01T10:00:00Z\n"
    add("usage", kind="jobs", text=usage)
    at = opened(from_job="true", job="acct-1")
    assert not at.exception
    assert "has no steps" in at.error[0].value
    assert "## Example: 232× on this kernel gives 1.00× to 4.75×" in text_of(at)
    assert not opened(job="acct-1").toggle(key="from_job").value


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"accelerated_ratio": "34.59"}, "34.59 % is 0.3459"),
        ({"compute_ms": "-3"}, "above 0"),
        ({"hidden_comm_ms": "500"}, "can hide under"),
    ],
)
@pytest.mark.usefixtures("lake")
def test_a_mistake_is_a_message_that_names_the_input(values: dict[str, str], said: str) -> None:
    at = opened(**typed("kernel-speedup", **values))
    assert not at.exception
    assert not at.metric
    text = at.error[0].value.replace("\\", "")
    assert said in text
    assert next(iter(values)) in text


@pytest.mark.usefixtures("lake")
def test_nonsense_in_a_link_is_ignored(text_of: Text) -> None:
    at = opened(**typed("kernel-speedup", speedup="fast", comm_ms="nan"))
    assert not at.exception
    assert text_of(at)


def test_figures_carry_the_numbers(
    add: Add, figures: Figures, array: Callable[[Any], np.ndarray]
) -> None:
    add("worker")
    found = by_name(figures(opened(from_job="false")))
    assert set(found) == {"composition", "speedup", "tornado"}
    bars = {trace["name"]: trace for trace in found["composition"]["spec"]["data"]}
    assert set(bars) == {"compute", "communication", "wait"}
    assert bars["compute"]["x"][0] == 100
    assert sum(trace["x"][1] for trace in bars.values()) == pytest.approx(45.43, abs=0.005)
    assert "<b>145 ms</b>" in found["composition"]["spec"]["layout"]["yaxis"]["ticktext"][0]
    curve = {trace["name"]: trace for trace in found["speedup"]["spec"]["data"]}
    assert set(curve) == {"band", "step speed-up", "here"}
    assert curve["here"]["y"][0] == pytest.approx(3.19, abs=0.005)
    notes = found["speedup"]["spec"]["layout"]["annotations"]
    assert [note["text"] for note in notes] == ["ceiling 3.22×"]
    # The pattern tells the two sides apart where the colour does not.
    sides = {t["name"]: t["marker"]["pattern"]["shape"] for t in found["tornado"]["spec"]["data"]}
    assert sides == {"input lower": "", "input higher": "/"}


@pytest.mark.usefixtures("lake")
def test_caveats_stand_under_the_answer(text_of: Text) -> None:
    said = text_of(opened())
    assert "Source: Amdahl 1967" in said
    assert "T' = C(1-f) + C f/s" in said
    assert "hidden communication not given" in said
    assert "Slower kernels on every rank lower the tax" in said


def test_the_price_of_the_page_is_used(add: Add, text_of: Text) -> None:
    add("worker")
    at = opened(calc="remove-worst", price="2.5", from_job="false")
    assert "the price at the top of the page" in captions(at)
    assert "--usd-per-gpu-hour" in command(at)
    assert "$130.29/d" in text_of(at)


@pytest.mark.parametrize("name", ["whatif", "whatif_answer", "whatif_data", "reference"])
def test_pages_are_thin(name: str) -> None:
    assert len((ROOT / "pages" / f"{name}.py").read_text().splitlines()) <= 150


def test_of_a_job_it_says_which_number_is_none_of_its_own(add: Add, text_of: Text) -> None:
    add("worker")
    said = text_of(opened(calc="kernel-speedup", from_job="true", job="worker"))
    assert "## This job, with an example for “Old kernel time / new kernel time”: 232× on" in said
