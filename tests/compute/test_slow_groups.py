"""Groups of ranks against the median group."""

from __future__ import annotations

import numpy as np
import pytest

from steptax.app.compute.straggler.slow_groups import GroupCheck, group_checks

TP, PP, DP = 2, 2, 4


def grid() -> dict[str, list[int | None]]:
    """Coordinates of 16 ranks, TP fastest."""
    ranks = range(TP * PP * DP)
    return {
        "tp": [r % TP for r in ranks],
        "dp": [r // TP % DP for r in ranks],
        "pp": [r // (TP * DP) for r in ranks],
    }


def checked(slow: dict[int, float], places: dict[str, list[int | None]]) -> dict[str, GroupCheck]:
    work = np.full((30, TP * PP * DP), 100.0)
    for rank, factor in slow.items():
        work[:, rank] *= factor
    return {check.kind: check for check in group_checks(work, range(work.shape[1]), places)}


def test_the_groups_of_a_slow_rank_are_suspected() -> None:
    found = checked({13: 1.3}, grid())
    assert {kind: check.groups for kind, check in found.items()} == {"TP": 8, "PP": 8, "DP": 4}
    suspects = {kind: check.suspects for kind, check in found.items()}
    assert [s.ranks for s in suspects["TP"]] == [(12, 13)]
    assert [s.ranks for s in suspects["PP"]] == [(5, 13)]
    assert [s.ranks for s in suspects["DP"]] == [(9, 11, 13, 15)]
    assert suspects["TP"][0].label == "DP 2 · PP 1"
    assert suspects["TP"][0].over_median_ratio == pytest.approx(1.3)


def test_a_tenth_is_not_enough_and_more_is() -> None:
    assert checked({13: 1.099}, grid())["TP"].suspects == ()
    assert len(checked({13: 1.101}, grid())["TP"].suspects) == 1


def test_the_slowest_group_comes_first() -> None:
    found = checked({0: 1.2, 13: 1.5}, grid())["TP"].suspects
    assert [s.ranks for s in found] == [(12, 13), (0, 1)]


def test_what_cannot_be_compared_says_why() -> None:
    places = grid()
    unknown = dict(places, tp=[None] * 16)
    found = checked({13: 1.3}, unknown)
    assert "not known" in str(found["TP"].reason)
    # Without TP, two ranks share each place of the others.
    assert "do not tell" in str(found["DP"].reason)
    single = {"dp": [*range(16)], "pp": [0] * 16}
    found = checked({13: 1.3}, single)
    assert "single rank" in str(found["PP"].reason)
    assert "three are needed" in str(found["DP"].reason)
