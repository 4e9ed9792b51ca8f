"""One repair has one number and one interval, and where a calculator takes means both are said."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steptax.app.cli import main
from steptax.app.format import format_measure
from steptax.app.views.trace.load import open_trace
from steptax.app.views.trace.rail import rail_answer
from steptax.app.views.whatif.job import JobInputs, job_inputs
from steptax.app.views.whatif.models import WhatIfView
from steptax.app.views.whatif.view import whatif_view
from steptax.app.views.workspace import Workspace, open_workspace

Run = Callable[..., Any]
PRICE = Decimal(2)
SLOW = 5
COLUMNS = "step rank start_s compute_ms comm_ms input_ms duration_ms loss"


def write_job(path: Path, *, ranks: int, steps: int, since: int) -> None:
    """Rank 5 computes 20 ms longer from step ``since`` on; every step ends with a loss."""
    rng = np.random.default_rng(3)
    now_s = 1_795_900_000.0
    with path.open("w", newline="") as handle:
        out = csv.writer(handle)
        out.writerow(
            ["step", "rank", "start_s", "compute_ms", "comm_ms", "input_ms", "duration_ms", "loss"]
        )
        for step in range(steps):
            compute = 80 + rng.normal(0, 1, ranks)
            compute[SLOW] += 20 if step >= since else 0
            length = compute.max() + 20
            for rank, own in enumerate(compute):
                times = (own, length - 5 - own, 5.0, length)
                loss = f"{8 - 3 * step / steps:.4f}"
                out.writerow((step, rank, f"{now_s:.6f}", *(f"{ms:.3f}" for ms in times), loss))
            now_s += length / 1000


@dataclass(frozen=True)
class Stored:
    """A job in a lake that commands read."""

    ws: Workspace
    run: Run
    job: str

    def source(self, **more: Any) -> JobInputs:
        return job_inputs(self.ws, self.job, price=PRICE, **more)


@pytest.fixture
def store(steptax: Run, tmp_path: Path) -> Callable[..., Stored]:
    def made(*, ranks: int, steps: int = 200, since: int = 100) -> Stored:
        write_job(tmp_path / "half.csv", ranks=ranks, steps=steps, since=since)
        steptax("ingest", "steps", tmp_path / "half.csv", "--job", "half")
        about = tmp_path / "jobs.csv"
        about.write_text(f"job_id,state,world_size\nhalf,running,{ranks}\n")
        steptax("ingest", "jobs", about)
        return Stored(open_workspace(tmp_path / "lake"), steptax, "half")

    return made


def ends(measure: dict[str, Any]) -> Any:
    return pytest.approx([measure[name] for name in ("value", "low", "high")], rel=1e-9)


def three(measure: Any) -> list[float]:
    if not isinstance(measure, dict):
        measure = measure.as_json()
    return [measure[name] for name in ("value", "low", "high")]


def test_the_repair_of_a_rank_that_is_slow_in_half_of_the_steps(
    store: Callable[..., Stored],
) -> None:
    stored = store(ranks=16)
    at = ("--price", PRICE)
    metrics = stored.run("job", "half", *at)["metrics"]
    per_day, share = metrics["recoverable_usd_per_day"], metrics["recoverable_ratio"]
    assert per_day["low"] < per_day["value"] < per_day["high"]

    first = stored.run("executive", *at)["fix_first"]
    assert three(first["worth_usd"]) == ends(metrics["recoverable_usd"])
    assert three(first["per_day_usd"]) == ends(per_day)

    curve = stored.run("whatif", "stragglers", "--job", "half", *at)["worst_k"]
    assert three(curve[0]["usd_per_day"]) == ends(per_day)
    fixed = stored.run("whatif", "fix", "--job", "half", "--rank", SLOW, *at)
    assert three(fixed["recovered_usd_per_day"]) == ends(per_day)
    answer = rail_answer(open_trace(stored.ws, "half"), ["worst:1"], PRICE)
    assert three(answer.S_before) == ends(metrics["slowdown_ratio"])

    # By means it is another number: beside it stands the one of all other pages.
    printed = stored.run("calc", "remove-worst", "--job", "half", *at)
    by_means = printed["measures"]["recovered_usd_per_day"]["value"]
    assert by_means > 1.05 * per_day["value"]
    steps = printed["step_by_step"]
    assert steps["ranks"] == [SLOW]
    assert three(steps["recovered_usd_per_day"]) == ends(per_day)
    assert three(steps["recovered_ratio"]) == ends(share)
    view = whatif_view("remove-worst", {}, source=stored.source(), price=PRICE)
    assert view.answer is not None
    beside = view.answer.step_by_step
    assert beside is not None
    assert beside.text == steps["text"]
    assert "by each rank's mean" in beside.text
    assert f"rank {SLOW} like its peers" in beside.text
    for measure in (beside.recovered_ratio, beside.recovered_usd_per_day):
        assert format_measure(measure) in beside.text


def test_what_is_said_beside_means_is_of_the_same_question(
    store: Callable[..., Stored], capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    stored = store(ranks=8, steps=60, since=30)
    source = stored.source()

    def beside(**typed: str) -> Any:
        view = whatif_view("remove-worst", typed, source=source, price=PRICE)
        assert view.answer is not None
        return view.answer.step_by_step

    # No other rank is behind its peers, so the second that is taken out costs nothing.
    two = beside(worst="2")
    assert two.ranks == (SLOW,)
    dear = beside(usd_per_gpu_hour="4")
    assert three(dear.recovered_usd_per_day) == pytest.approx(
        [2 * value for value in three(beside().recovered_usd_per_day)]
    )
    assert beside(times_ms="100,100,130") is None
    assert beside(other_ms="3") is None
    assert beside(worst="0") is None
    line = ["steptax", "calc", "remove-worst", "--job", "half", "--worst", "2", "--price", "2"]
    monkeypatch.setattr("sys.argv", line)
    with pytest.raises(SystemExit):
        main()
    assert two.text in " ".join(capsys.readouterr().out.split())


def same_numbers(view: WhatIfView, run: Run) -> None:
    """What the page says is what its command prints."""
    assert view.answer is not None
    printed = run(*shlex.split(view.command)[1:])
    assert printed["sentence"] == view.answer.sentence
    for item in view.answer.measures:
        found = printed["measures"][item.name]
        told = item.measure
        assert (found["value"], found["low"], found["high"]) == (told.value, told.low, told.high)


@pytest.mark.parametrize("window", [None, 50])
def test_a_command_names_the_job_in_place_of_a_time_for_each_of_its_many_ranks(
    store: Callable[..., Stored], window: int | None
) -> None:
    stored = store(ranks=70, steps=100, since=60)
    source = stored.source(last_steps=window)
    view = whatif_view("remove-worst", {}, source=source, price=PRICE)
    words = shlex.split(view.command)
    assert words[words.index("--job") + 1] == "half"
    assert "--times-ms" not in words
    assert words[words.index("--price") + 1] == "2"
    assert ("--window" in words) == (window is not None)
    same_numbers(view, stored.run)
    assert view.answer is not None
    per_day = next(m for m in view.answer.measures if m.name == "recovered_usd_per_day")
    assert per_day.measure.value is not None
    # What was typed still comes first.
    typed = {"worst": "2", "usd_per_gpu_hour": "7", "replacement_usd": "500"}
    same_numbers(whatif_view("remove-worst", typed, source=source, price=PRICE), stored.run)
    # So many losses, and the price of each of their steps, are not written out either.
    learned = whatif_view(
        "learning-velocity", {"window_usd": "0.001"}, source=stored.source(), price=PRICE
    )
    assert "--job half --window 500 --price 2" in learned.command
    assert "--loss" not in learned.command
    same_numbers(learned, stored.run)


def test_a_few_times_are_written_out(store: Callable[..., Stored]) -> None:
    stored = store(ranks=8, steps=60, since=30)
    view = whatif_view("remove-worst", {}, source=stored.source(), price=PRICE)
    assert "--times-ms" in view.command
    assert "--job" not in view.command
    assert "--usd-per-gpu-hour 2" in view.command
    same_numbers(view, stored.run)
