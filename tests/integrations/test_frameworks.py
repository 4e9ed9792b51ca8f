"""Real training jobs of four processes, one of them slow: the card names it and what it is slow at.

Each runs with the framework itself, on the processor, over gloo.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.jobs import DELAY_S, RANKS, SLOW_RANK, launch

STEPS = 40
NEEDS = {
    "loop": ("torch",),
    "ddp": ("torch",),
    "lightning": ("torch", "lightning"),
    "hf": ("torch", "transformers", "accelerate"),
}

pytestmark = pytest.mark.slow


def card_of(framework: str, slow: str, lake: Path, steptax: Callable[..., Any]) -> dict[str, Any]:
    """Run the job and ask for its card; skips where the framework is not installed."""
    for name in NEEDS[framework]:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    lake.mkdir()
    launch(framework, slow, lake, STEPS)
    found: dict[str, Any] = steptax("job", f"{framework}-{slow}", "--price", "2", "--lake", lake)
    assert found["coverage"]["ranks_reporting"] == RANKS
    return found


@pytest.mark.parametrize("framework", NEEDS)
@pytest.mark.parametrize("slow", ["compute", "input"])
def test_the_slow_rank_and_its_phase_are_named(
    framework: str, slow: str, tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    found = card_of(framework, slow, tmp_path / "recorded", steptax)
    card = found["card"]
    assert card["culprit_rank"] == SLOW_RANK
    assert card["phase"].startswith(slow)
    # The delay is a lower bound: processes that share cores are slowed by each other, too.
    assert found["metrics"]["excess_ms"]["value"] > 0.5e3 * DELAY_S
    assert found["learning"]["spent_usd"]["value"] > 0
    assert found["learning"]["last_loss"]["value"] > 0


def test_a_rank_that_is_late_to_join_its_collective_is_named(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    card = card_of("loop", "staging", tmp_path / "recorded", steptax)["card"]
    assert card["culprit_rank"] == SLOW_RANK
    assert card["phase"].startswith("other")


@pytest.mark.parametrize("slow", ["collective", "behind", "library"])
def test_a_rank_that_is_slow_in_its_collective_is_named(
    slow: str, tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    # All ranks leave the collective together: only when each called the library, and the probes of
    # its links, tell who held up whom.
    found = card_of("loop", slow, tmp_path / "recorded", steptax)
    card = found["card"]
    assert card["culprit_rank"] == SLOW_RANK
    assert card["phase"].startswith("collective")
    assert found["metrics"]["excess_ms"]["value"] > 0.5e3 * DELAY_S
    named = any("link probes" in text for text in card["evidence_for"])
    assert named == (slow == "library")


def test_a_slow_network_is_communication_and_nobody_is_accused_of_it(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    found = card_of("loop", "network", tmp_path / "recorded", steptax)
    # On a busy machine some rank may be slow as well, by less.
    excess_ms = found["metrics"]["excess_ms"]["value"]
    assert excess_ms is None or excess_ms < 0.5e3 * DELAY_S
    assert found["card"]["phase"] != "collective"
    shares = {line["bucket"]: line["share"] for line in found["ledger"]}
    assert max(shares, key=lambda name: shares[name] or 0) == "exposed_comm"
