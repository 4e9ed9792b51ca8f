"""What link probes add to the card: recorded by the recorder, read back by the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steptax.app.lake.lake import Lake
from steptax.connectors.recorder import Clock, StepRecorder

RANKS, STEPS, COMPUTE_MS, COMM_MS = 4, 48, 30.0, 60.0


def record(
    lake: Path,
    link_us: Callable[[int, int], int],
    *,
    late: int | None = None,
    has_comm: bool = True,
    every: int = 8,
) -> None:
    """Ranks that compute and communicate alike; ``late`` computes longer, and nobody waits less."""
    lake.mkdir(exist_ok=True)
    for rank in range(RANKS):
        now = [0]
        clock = Clock(lambda now=now: 1_700_000_000_000_000_000 + now[0], lambda now=now: now[0])
        with StepRecorder(lake, "j", rank, RANKS, clock=clock, cuda=False) as rec:
            for step in range(STEPS):
                with rec.step(step):
                    with rec.phase("compute"):
                        now[0] += round(1e6 * (COMPUTE_MS + (20 if rank == late else 0)))
                    rest = COMM_MS + (0 if rank == late or late is None else 20)
                    with rec.collective() if has_comm else rec.phase("other"):
                        now[0] += round(1e6 * (rest + 0.01 * (step % 3)))
                    if step % every == every - 1:
                        for peer in {(rank - 1) % RANKS, (rank + 1) % RANKS}:
                            rec.link(step, peer, link_us(*sorted((rank, peer))), 4 << 20)


def slow_rank(a: int, b: int) -> int:
    return 5000 if 2 in (a, b) else 1000


def card_of(steptax: Callable[..., Any], lake: Path) -> Any:
    return steptax("job", "j", "--price", "2", "--lake", lake)


def test_the_rows_are_in_the_lake(tmp_path: Path) -> None:
    record(tmp_path, slow_rank)
    rows = Lake(tmp_path).read("link_probes", "j").to_pylist()
    assert len(rows) == 2 * RANKS * STEPS // 8
    told = {(row["rank"], row["peer"], row["duration_us"]) for row in rows if row["step"] == 7}
    assert told == {
        (a, b, slow_rank(a, b)) for a in range(RANKS) for b in ((a + 1) % RANKS, (a - 1) % RANKS)
    }
    assert {row["bytes"] for row in rows} == {4 << 20}


def test_a_rank_that_is_slow_on_its_links_is_named_and_priced(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    record(tmp_path / "recorded", slow_rank)
    found = card_of(steptax, tmp_path / "recorded")
    card, metrics = found["card"], found["metrics"]
    assert card["verdict"] == "worker"
    assert card["culprit_rank"] == 2
    assert card["phase"] == "collective"
    assert any("5.00 ms to rank 1 and 5.00 ms to rank 3" in text for text in card["evidence_for"])
    # The transfer, as much as it is longer than at the speed of the other links; at most.
    assert metrics["excess_ms"]["value"] == pytest.approx(COMM_MS * 0.8, rel=1e-3)
    assert metrics["excess_ms"]["low"] == 0
    share = COMM_MS * 0.8 / (COMPUTE_MS + COMM_MS)
    assert metrics["recoverable_ratio"]["value"] == pytest.approx(share, rel=1e-3)
    assert "upper bound" in metrics["excess_ms"]["warnings"][0]
    assert metrics["persistence_ratio"]["value"] == 1
    assert metrics["stability_ratio"]["value"] is None
    assert "adapter" in card["next_action"]


def test_a_slow_link_is_said_and_its_ends_are_not_accused(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    record(tmp_path / "recorded", lambda a, b: 5000 if (a, b) == (1, 2) else 1000)
    card = card_of(steptax, tmp_path / "recorded")["card"]
    assert card["culprit_rank"] is None
    assert "link between ranks 1 and 2 is slow: 5.00 ms" in card["sentence"]


def test_a_network_that_is_slow_for_all_is_nobodys(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    record(tmp_path / "recorded", lambda a, b: 50_000)
    card = card_of(steptax, tmp_path / "recorded")["card"]
    assert card["culprit_rank"] is None
    assert "no rank and no link is slower than the others" in card["sentence"]


def test_a_rank_that_is_late_by_its_own_work_stays_the_culprit(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    record(tmp_path / "recorded", slow_rank, late=1)
    card = card_of(steptax, tmp_path / "recorded")["card"]
    assert card["culprit_rank"] == 1
    assert card["phase"] == "compute"
    assert "Rank 2 is slow inside its collectives" in card["sentence"]


def test_without_time_in_collectives_nobody_is_accused_of_what_has_no_price(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    record(tmp_path / "recorded", slow_rank, has_comm=False)
    card = card_of(steptax, tmp_path / "recorded")["card"]
    assert card["culprit_rank"] is None
    assert "Rank 2 is slow inside its collectives" in card["sentence"]


def test_too_few_probes_say_nothing(tmp_path: Path, steptax: Callable[..., Any]) -> None:
    record(tmp_path / "recorded", slow_rank, every=STEPS // 2)
    card = card_of(steptax, tmp_path / "recorded")["card"]
    assert card["culprit_rank"] is None
    assert "link" not in card["sentence"]
