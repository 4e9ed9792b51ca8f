"""``steptax ledger``, as a person and as a program reads it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steptax.app.cli import main
from tests.app.fleet_lake import RANKS, S, charge, event, job, lake_of, on, steps, us

Steptax = Callable[..., Any]
Text = Callable[..., str]

START = us(2026, 10, 31, 23, 30)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A job over the end of October, one with accounting only, and one without times."""
    root = tmp_path / "lake"
    lake_of(
        root,
        jobs=[
            job("late", START, START + 60 * 60 * S, team="red"),
            job("acct", us(2026, 11, 2), us(2026, 11, 2, 3), team="blue"),
            job("nothing", None, None, team="blue"),
        ],
        events=[event("late", "process_start", START + 600 * S)],
        steps=steps("late", START + 20 * 60 * S, 40),
    )
    return root


@pytest.fixture
def text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Text:
    """What a command prints for people."""
    monkeypatch.setenv("STEPTAX_LAKE", str(tmp_path / "lake"))
    monkeypatch.delenv("STEPTAX_PRICE_USD_PER_GPU_HOUR", raising=False)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["steptax", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 0
        return capsys.readouterr().out

    return run


@pytest.mark.usefixtures("lake")
def test_json_has_every_bucket_of_every_group(steptax: Steptax) -> None:
    data = steptax("ledger", "--by", "team", "--price", "3")
    assert data["denominator"] == "paid"
    assert [group["name"] for group in data["groups"]] == ["blue", "red"]
    red = data["groups"][1]
    assert red["gpu_hours"] == RANKS
    lines = {own["bucket"]: own for own in red["lines"]}
    assert lines["pending"] == {
        "bucket": "pending",
        "number": "1",
        "title": "held, training process not running",
        "gpu_seconds": 600.0 * RANKS,
        "usd": 2.0,
        "share": pytest.approx(1 / 6),
        "note": None,
    }
    assert red["metrics"]["goodput_ratio"]["value"] == pytest.approx(40 / 60)
    assert red["metrics"]["effective_mfu_ratio"]["value"] is None
    assert sum(own["usd"] for own in red["lines"] if own["usd"] is not None) == pytest.approx(12)
    assert data["total"]["usd"] == 48.0
    assert data["total"]["gpu_hours"] == 4 * RANKS
    (left,) = data["not_billed"]
    assert left["job_id"] == "nothing"
    assert "neither start and end" in left["reason"]
    assert data["reconciliation"]["effective_cost"] is None
    assert "empty" in data["reconciliation"]["reason"]


@pytest.mark.usefixtures("lake")
def test_months_in_a_zone_and_a_window(steptax: Steptax) -> None:
    def held(*flags: str) -> dict[str, float]:
        data = steptax("ledger", "--by", "month", *flags)
        return {group["name"]: group["gpu_hours"] for group in data["groups"]}

    assert held("--job", "late") == {"2026-10": RANKS / 2, "2026-11": RANKS / 2}
    assert held("--job", "late", "--tz", "Europe/Berlin") == {"2026-11": RANKS}
    assert held("--from", "2026-11-01") == {"2026-11": 3.5 * RANKS}
    assert held("--to", "2026-10-31") == {"2026-10": RANKS / 2}


@pytest.mark.usefixtures("lake")
def test_text_says_what_percentages_are_shares_of(text: Text) -> None:
    out = text("ledger", "--price", "3")
    assert "percentages of paid time" in out
    assert "$48.00" in out
    assert "given price $3.00 per GPU-hour" in out
    for words in ("held, training process not running", "straggler wait", "unexplained"):
        assert words in out
    assert "SG" in out
    assert "Not reconciled" in out
    assert "1 job without a bill" in out
    assert "nothing  its record has neither start and end nor GPU-hours" in out
    allocated = text("ledger", "--denominator", "allocated")
    assert "percentages of allocated time" in allocated
    assert "of paid" not in allocated
    assert "$" not in allocated


def test_text_shows_the_reconciled_bill(lake: Path, text: Text) -> None:
    lake_of(
        lake,
        ranks=on("late", "n"),
        charges=[
            charge("1", START, START + 2 * 60 * 60 * S, "20.00", "n"),
            charge("2", START, START + 60 * S, "5.00", None),
        ],
    )
    out = text("ledger", "--by", "cluster")
    for title, cost in (("effective", "25"), ("jobs", "10"), ("unallocated", "10")):
        assert any(title in row and f"${cost}.00" in row for row in out.splitlines()), title
    assert "20.0 % of the effective cost" in out
    assert "held by no job" in out


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--by", "moon"), "no level 'moon'"),
        (("--denominator", "half"), "no denominator 'half'"),
        (("--tz", "Mars/North"), "no time zone"),
        (("--from", "yesterday"), "expected a day"),
        (("--from", "2026-11-02", "--to", "2026-11-01"), "is before"),
        (("--job", "gone"), "no job 'gone'"),
        (("--price", "0"), "expected a price"),
    ],
)
def test_mistakes_are_the_users_and_say_what_to_do(
    steptax: Steptax, flags: tuple[str, ...], words: str
) -> None:
    assert words in steptax("ledger", *flags, fails=2)["message"]


def test_accounting_of_a_real_cluster(shared: Callable[[str], Path], steptax: Steptax) -> None:
    steptax("ingest", "jobs", shared("fleet/philly_jobs.parquet"), "--time-unit", "s")
    data = steptax("ledger", "--by", "cluster", "--price", "2")
    billed = data["total"]["gpu_hours"]
    assert billed == pytest.approx(642409.31, abs=0.05)
    assert sum(group["gpu_hours"] for group in data["groups"]) == pytest.approx(billed)
    cents = sum(round(group["usd"] * 100) for group in data["groups"])
    assert cents == round(data["total"]["usd"] * 100)
    assert data["jobs_billed"] + len(data["not_billed"]) == len(steptax("jobs"))
