"""Loss over paid dollars: from steps, from what a tracker logged, and what is not known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.learning.record import LossRecord, paid_since
from steptax.app.errors import UserError
from tests.app.fleet_lake import RANKS as FLEET_RANKS
from tests.app.fleet_lake import lake_of, steps

RANKS = 2
PRICE = "1800"  # two devices at this price are a dollar a second
BEGIN_US = 1_700_000_000_000_000


@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=30).map(sorted),
    st.integers(0, 10**9),
    st.integers(1, 64),
)
def test_all_that_was_paid_is_in_some_row(ends: list[int], begin: int, gpus: int) -> None:
    usd = paid_since(ends, begin, gpus, 3600.0)
    assert (usd >= 0).all()
    assert usd.sum() == pytest.approx(max(0, ends[-1] - begin) / 1e6 * gpus)


def test_moments_that_fall_and_no_devices_are_refused() -> None:
    with pytest.raises(UserError, match="must not fall"):
        paid_since([2, 1], 0, 1, 1.0)
    with pytest.raises(UserError, match="at least 1"):
        paid_since([1], 0, 0, 1.0)


def test_what_steps_without_a_loss_cost_goes_to_the_next() -> None:
    loss = np.array([np.nan, 3.0, np.nan, np.nan, 2.0, np.nan])
    usd = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    known = LossRecord(np.arange(6), loss, usd, None, "").reported()
    assert known.step.tolist() == [1, 4]
    assert known.usd is not None
    assert known.usd.tolist() == [3.0, 28.0]


def write_steps(path: Path, order: list[int], *, gap_s: float = 0.0) -> None:
    """One second a step, in the order given; before a step that goes back there is a gap."""
    at_us, attempt, lines = BEGIN_US, 0, []
    for place, step in enumerate(order):
        if place and step <= order[place - 1]:
            attempt += 1
            at_us += round(gap_s * 1e6)
        for rank in range(RANKS):
            lines.append(
                {
                    "job_id": "j",
                    "attempt": attempt,
                    "step": step,
                    "rank": rank,
                    "start_us": at_us,
                    "duration_us": 1_000_000,
                    "loss": 8.0 - 0.1 * step,
                }
            )
        at_us += 1_000_000
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_lost_steps_and_the_time_between_are_paid_and_teach_nothing(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    path = tmp_path / "t.jsonl"
    write_steps(path, [*range(20), *range(10, 40)], gap_s=60)
    steptax("ingest", "steps", path)
    learned = steptax("job", "j", "--price", PRICE, "--target-loss", "6.05")["learning"]
    assert learned["spent_usd"]["value"] == pytest.approx(20 + 60 + 30)
    assert learned["lost_usd"]["value"] == pytest.approx(10)  # steps 10 to 19, run again
    # Step 20 is the first at or below: 20 s, the gap, and 11 steps of the second attempt.
    assert learned["usd_to_target"]["value"] == pytest.approx(20 + 60 + 11)
    assert learned["loss_per_usd"]["value"] == pytest.approx(0.1, rel=1e-6)
    assert learned["loss_per_usd"]["low"] is not None
    points = {p["step"]: p["paid_usd"] for p in learned["points"]}
    assert sorted(points) == list(range(40))
    assert points[9] == pytest.approx(10)
    assert points[10] == pytest.approx(20 + 60 + 1)


def test_the_calculator_starts_from_the_same_record(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    path = tmp_path / "t.jsonl"
    write_steps(path, [*range(20), *range(10, 40)], gap_s=60)
    steptax("ingest", "steps", path)
    page = steptax("job", "j", "--price", PRICE, "--target-loss", "6.05")["learning"]
    calc = steptax(
        *("calc", "learning-velocity", "--job", "j", "--price", PRICE, "--target-loss", "6.05")
    )
    for name in ("loss_per_usd", "usd_to_target", "spent_usd", "lost_usd"):
        assert calc["measures"][name]["value"] == pytest.approx(page[name]["value"]), name


def test_a_target_that_is_not_reached_has_no_price(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    path = tmp_path / "t.jsonl"
    write_steps(path, list(range(30)))
    steptax("ingest", "steps", path)
    found = steptax("job", "j", "--price", PRICE, "--target-loss", "1")["learning"]["usd_to_target"]
    assert found["value"] is None
    assert "not reached" in found["reason"]


def test_without_a_price_there_are_no_dollars_and_a_reason(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    path = tmp_path / "t.jsonl"
    write_steps(path, list(range(30)))
    steptax("ingest", "steps", path)
    learned = steptax("job", "j")["learning"]
    assert learned["last_loss"]["value"] == pytest.approx(8.0 - 2.9)
    assert learned["spent_usd"]["value"] is None
    assert "no price is set" in learned["spent_usd"]["reason"]


def write_history(path: Path, **of_row: Any) -> None:
    rows = (
        {"_step": s, "loss": 8.0 - 0.1 * s, "_timestamp": BEGIN_US / 1e6 + s + 1, **of_row}
        for s in range(40)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class TestTracker:
    def test_a_job_without_steps_has_its_losses(
        self, tmp_path: Path, steptax: Callable[..., Any]
    ) -> None:
        path = tmp_path / "h.jsonl"
        write_history(path)
        path.write_text(path.read_text().replace('"_step": 0,', '"_step": 0, "_runtime": 1,', 1))
        steptax("ingest", "wandb", path, "--world-size", RANKS)
        learned = steptax("job", "h", "--price", PRICE, "--target-loss", "6.05")["learning"]
        assert learned["spent_usd"]["value"] == pytest.approx(40)
        assert learned["usd_to_target"]["value"] == pytest.approx(21)
        assert learned["loss_per_usd"]["value"] == pytest.approx(0.1, rel=1e-6)
        assert learned["warnings"] == []
        calc = steptax("calc", "learning-velocity", "--job", "h", "--price", PRICE)
        assert calc["measures"]["loss_per_usd"]["value"] == pytest.approx(0.1, rel=1e-6)

    def test_without_a_world_size_dollars_are_not_known(
        self, tmp_path: Path, steptax: Callable[..., Any]
    ) -> None:
        path = tmp_path / "h.jsonl"
        write_history(path)
        steptax("ingest", "wandb", path)
        spent = steptax("job", "h", "--price", PRICE)["learning"]["spent_usd"]
        assert spent["value"] is None
        assert "--world-size" in spent["reason"]

    def test_it_gives_a_recorded_job_the_loss_that_its_steps_lack(
        self, tmp_path: Path, steptax: Callable[..., Any]
    ) -> None:
        steps, history = tmp_path / "t.jsonl", tmp_path / "h.jsonl"
        write_steps(steps, list(range(40)))
        steps.write_text(
            "".join(
                json.dumps({k: v for k, v in json.loads(line).items() if k != "loss"}) + "\n"
                for line in steps.read_text().splitlines()
            )
        )
        write_history(history)
        steptax("ingest", "steps", steps)
        steptax("ingest", "wandb", history, "--job", "j")
        found = steptax("job", "j", "--price", PRICE)
        assert found["card"]["verdict"]  # the steps are judged as before
        assert found["job"]["world_size"] == RANKS
        assert found["learning"]["spent_usd"]["value"] == pytest.approx(40)
        assert "wandb" in found["learning"]["basis"]

    def test_a_job_without_any_loss_says_so(
        self, tmp_path: Path, steptax: Callable[..., Any]
    ) -> None:
        path = tmp_path / "h.jsonl"
        path.write_text('{"_step": 1, "accuracy": 0.5}\n')
        steptax("ingest", "wandb", path)
        last = steptax("job", "h")["learning"]["last_loss"]
        assert (last["value"], last["reason"]) == (None, "the job reports no loss")
        error = steptax("calc", "learning-velocity", "--job", "h", fails=2)
        assert "reports no loss" in error["message"]


def test_rows_told_twice_cost_once_also_when_sums_are_all_that_is_kept(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    rows = [
        one
        | {"duration_us": 1_000_000, "start_us": BEGIN_US + one["step"] * 1_000_000, "loss": 2.0}
        for one in steps("j", BEGIN_US, 20)
    ]
    ws = lake_of(tmp_path / "lake", steps=[*rows, *rows[10 * FLEET_RANKS :]])
    assert ws.job("j").get("world_size") is None
    lake, paid = ("--lake", tmp_path / "lake"), []
    for _ in range(2):
        paid.append(steptax("job", "j", "--price", PRICE, *lake)["learning"]["spent_usd"]["value"])
        steptax("retain", "--days", "1", "--drop", *lake)
    assert paid[0] == pytest.approx(20 * FLEET_RANKS / 2)
    assert paid[1] == pytest.approx(paid[0])
