"""Scores as NVIDIA's resiliency extension defines them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.straggler.nvrx_scores import KernelStat, gpu_scores, nvrx_scores

UNTIMED = settings(max_examples=40)


@UNTIMED
@given(
    medians=st.lists(st.floats(1.0, 1e6), min_size=2, max_size=9),
    steps=st.integers(1, 80),
)
def test_the_fastest_rank_has_one_and_the_others_their_part_of_it(
    medians: list[float], steps: int
) -> None:
    times = np.tile(medians, (steps, 1))
    (section,) = nvrx_scores({"compute": times}, range(len(medians))).sections
    np.testing.assert_allclose(section.relative, min(medians) / np.array(medians))
    assert section.relative.max() == 1
    assert (section.individual is None) == (steps < 40)


def test_medians_ignore_missing_reports_and_spikes() -> None:
    times = np.full((41, 3), 100.0)
    times[:, 1] = 200.0
    times[::3] = np.nan
    times[1] = 9_000.0
    found = nvrx_scores({"compute": times}, (7, 8, 9))
    assert found.sections[0].relative.tolist() == [1.0, 0.5, 1.0]
    assert found.flagged() == {1: ("compute",)}


def test_a_rank_is_flagged_below_three_quarters_only() -> None:
    times = np.tile([75.0, 100.0, 100.1], (20, 1))
    assert list(nvrx_scores({"compute": times}, range(3)).flagged()) == [2]


def test_a_rank_that_got_slower_is_flagged_against_its_own_best() -> None:
    times = np.full((100, 2), 100.0)
    times[60:, :] = 150.0
    found = nvrx_scores({"compute": times}, range(2))
    (section,) = found.sections
    assert section.relative.tolist() == [1.0, 1.0]
    assert section.individual is not None
    np.testing.assert_allclose(section.individual, 100 / 150)
    assert found.flagged() == dict.fromkeys((0, 1), ("compute, against its own best",))


def test_gpu_score_by_hand() -> None:
    """Two common kernels; one of one rank only; one collective."""
    kernels = [
        KernelStat(0, "gemm", 10, 4.0, 4.0),
        KernelStat(1, "gemm", 10, 8.0, 8.0),
        KernelStat(0, "norm", 5, 2.0, 2.0),
        KernelStat(1, "norm", 5, 2.0, 2.0),
        KernelStat(1, "only_here", 1, 1000.0, 1000.0),
        KernelStat(0, "ncclDevKernel_AllReduce_Sum", 1, 3369.0, 3369.0),
        KernelStat(1, "ncclDevKernel_AllReduce_Sum", 1, 256.0, 256.0),
    ]
    scores, reason = gpu_scores(kernels, (0, 1))
    assert reason is None
    assert scores is not None
    # Rank 1: (0.5 x 10 x 8 + 1 x 5 x 2) / (10 x 8 + 5 x 2).
    assert scores.tolist() == pytest.approx([1.0, (0.5 * 80 + 1.0 * 10) / 90])


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        ([], "no kernel was traced"),
        ([KernelStat(0, "ncclKernel", 1, 1.0, 1.0)], "only collective"),
        ([KernelStat(0, "gemm", 1, 1.0, 1.0)], "on every rank"),
    ],
)
def test_no_gpu_score_without_common_kernels(kernels: list[KernelStat], said: str) -> None:
    scores, reason = gpu_scores(kernels, (0, 1))
    assert scores is None
    assert said in str(reason)


def test_what_is_missing_says_why() -> None:
    found = nvrx_scores({}, range(2))
    assert found.sections == ()
    assert "no phase" in str(found.section_reason)
    idle = nvrx_scores({"checkpoint": np.zeros((50, 2))}, range(2))
    assert "every rank" in str(idle.section_reason)
    short = nvrx_scores({"compute": np.ones((5, 2))}, range(2))
    assert "two reports" in str(short.individual_reason)
