"""Models to hold a run against: time of a collective, scaling laws, gain over a baseline."""

from __future__ import annotations

from typing import Any

import pytest

from steptax.app.compute.calculators.collective_time import collective_time
from steptax.app.compute.calculators.compute_equivalent_gain import compute_equivalent_gain
from steptax.app.compute.calculators.expected_max import expected_max
from steptax.app.compute.calculators.scaling_law import scaling_law
from steptax.app.errors import UserError

ONE_NODE: dict[str, Any] = {
    "collective": "all_reduce", "ranks": 8, "size_bytes": "1 GiB", "link_gb_per_s": "450 GiB/s",
    "alpha_us": 3,
}  # fmt: skip
TWO_NODES: dict[str, Any] = {
    "collective": "all_reduce", "ranks": 16, "nodes": 2, "size_bytes": 1e9, "link_gb_per_s": 100,
    "alpha_us": 1, "net_gb_per_s": 10, "net_alpha_us": 10,
}  # fmt: skip
#: Two parts of 1.4e12 tokens at 70e9 parameters and 2 USD an hour.
CHINCHILLA: dict[str, Any] = {"params": 70e9, "tokens": 1.4e12}
PAID: dict[str, Any] = {
    "peak_tflops": 989.5, "mfu_ratio": 0.4, "goodput_ratio": 0.9, "usd_per_gpu_hour": 2,
}  # fmt: skip


def test_algorithms_inside_a_node() -> None:
    """1 GiB over 450 GiB/s is 1/450 s; the ring is that of StragglAR's own simulation."""
    result = collective_time.run(ONE_NODE)
    once = 1e3 / 450
    assert round(result.ring_ms.value, 3) == 3.931
    assert result.halving_doubling_ms.value == pytest.approx(6 * 0.003 + 1.75 * once)
    assert result.double_tree_ms.value == pytest.approx(14 * 0.003 + 2 * once)
    assert result.hierarchical_ms.value == pytest.approx(result.ring_ms.value)
    assert result.main.value == result.ring_ms.value
    assert (result.band.low, result.band.high) == (
        result.halving_doubling_ms.value,
        result.double_tree_ms.value,
    )
    assert result.band.basis.startswith("over the algorithms")
    assert result.bandwidth_ms.value == pytest.approx(1.75 * once)
    assert result.latency_share_ratio.value == pytest.approx(14 * 0.003 / result.ring_ms.value)


def test_algorithms_over_two_nodes() -> None:
    result = collective_time.run(TWO_NODES)
    assert result.ring_ms.value == pytest.approx(2 * 15 * 0.01 + 2 * 15 / 16 * 100)
    assert result.halving_doubling_ms.value == pytest.approx(2 * 4 * 0.01 + 2 * 15 / 16 * 100)
    assert result.double_tree_ms.value == pytest.approx(2 * (0.01 + 7 * 0.001) + 2 * 100)
    # In the node 2 x 7/8 x 10 ms, over the network 2 x 1/2 x (1/8 of it at a tenth).
    assert result.hierarchical_ms.value == pytest.approx(
        2 * (0.007 + 8.75) + 2 * (0.01 + 0.5 * 12.5)
    )
    assert result.band.low == result.hierarchical_ms.value
    hierarchy = collective_time.run({**TWO_NODES, "algorithm": "hierarchical"})
    assert hierarchy.main.value == result.hierarchical_ms.value
    assert hierarchy.main.low is None
    assert "either way" in hierarchy.band.basis


def test_gathering_is_half_of_the_ring_and_only_a_ring() -> None:
    gather = collective_time.run({**ONE_NODE, "collective": "all_gather"})
    assert gather.main.value == pytest.approx(collective_time.run(ONE_NODE).ring_ms.value / 2)
    assert "all_reduce only" in (gather.double_tree_ms.reason or "")
    odd = collective_time.run({**ONE_NODE, "ranks": 6})
    assert "power of two" in (odd.halving_doubling_ms.reason or "")


def test_nccl_s_own_model() -> None:
    """tuning.cc: ring, Simple: 8.4 + 14 x 3.4 us; tree, LL, 4 nodes: 6.8 + 2 (7 x 0.6 + 2 x 5)."""
    result = collective_time.run({**ONE_NODE, "generation": "hopper", "link_gb_per_s": 450})
    assert result.nccl_ring_latency_us.value == pytest.approx(56.0)
    assert result.nccl_ring_ms.value == pytest.approx(0.056 + 1.75 * 2**30 / 450e6)
    tree_us = 8.4 + 14 * 4.0
    assert result.nccl_tree_latency_us.value == pytest.approx(tree_us)
    assert result.nccl_tree_ms.value == pytest.approx(tree_us / 1e3 + 2 * 2**30 / 414e6)
    assert result.nvls_link_gb_per_s.value == pytest.approx(382.5)
    far = collective_time.run({**TWO_NODES, "ranks": 32, "nodes": 4, "protocol": "LL"})
    assert far.nccl_tree_latency_us.value == pytest.approx(35.2)
    assert "LL" in (far.nccl_ring_ms.reason or "")


def test_a_measured_time_against_the_model() -> None:
    result = collective_time.run({**TWO_NODES, "algorithm": "ring", "measured_ms": 2 * 187.8})
    assert result.of_model_ratio.value == pytest.approx(0.5)
    faster = collective_time.run({**TWO_NODES, "algorithm": "ring", "measured_ms": 100})
    assert "faster" in (faster.of_model_ratio.reason or "")


@pytest.mark.parametrize(
    ("call", "where"),
    [
        ({**ONE_NODE, "nodes": 3}, "nodes"),
        ({**ONE_NODE, "nodes": 2}, "net_gb_per_s"),
        ({**ONE_NODE, "nodes": 2, "net_gb_per_s": 50}, "net_alpha_us"),
        ({**ONE_NODE, "ranks": 6, "algorithm": "halving-doubling"}, "algorithm"),
        ({**ONE_NODE, "collective": "all_gather", "algorithm": "double-tree"}, "algorithm"),
        ({**ONE_NODE, "collective": "broadcast"}, "collective"),
    ],
)
def test_collectives_that_cannot_be(call: dict[str, Any], where: str) -> None:
    with pytest.raises(UserError) as caught:
        collective_time.run(call)
    assert caught.value.where == where


def test_both_scaling_laws_side_by_side() -> None:
    """Hoffmann et al. 2022, Besiroglu et al. 2024, at the size of Chinchilla."""
    result = scaling_law.run(CHINCHILLA)
    hoffmann = 1.69 + 406.4 / 70e9**0.34 + 410.7 / 1.4e12**0.28
    besiroglu = 1.8172 + 482.01 / 70e9**0.3478 + 2085.43 / 1.4e12**0.3658
    assert result.loss_hoffmann.value == pytest.approx(hoffmann)
    assert result.loss_besiroglu.value == pytest.approx(besiroglu)
    assert round(hoffmann, 3) == 1.937
    assert result.main.value == result.loss_hoffmann.value
    assert (result.main.low, result.main.high) == (
        result.loss_hoffmann.value,
        result.loss_besiroglu.value,
    )
    assert result.band.basis == "between the two published fits"
    assert result.best_tokens_per_param_besiroglu.value == pytest.approx(20, abs=3)
    assert result.best_tokens_per_param_hoffmann.value > 60
    assert result.constants["besiroglu"]["beta"] == 0.3658
    assert result.loss_per_usd.value is None
    assert "peak_tflops" in (result.tokens_per_usd.reason or "")


def test_what_a_dollar_buys_by_a_scaling_law() -> None:
    result = scaling_law.run({**CHINCHILLA, **PAID})
    per_usd = 3600 * 989.5e12 * 0.4 * 0.9 / (6 * 70e9 * 2)
    assert result.tokens_per_usd.value == pytest.approx(per_usd)
    assert result.spent_usd.value == pytest.approx(1.4e12 / per_usd)
    slope = 0.28 * 410.7 * 1.4e12**-1.28 * per_usd
    assert result.loss_per_usd_hoffmann.value == pytest.approx(slope)
    assert result.main.value == pytest.approx(1e6 * slope)
    other = 0.3658 * 2085.43 * 1.4e12**-1.3658 * per_usd
    assert result.loss_per_usd_besiroglu.value == pytest.approx(other)
    one = scaling_law.run({**CHINCHILLA, **PAID, "constants": "besiroglu"})
    assert one.main.value == pytest.approx(1e6 * other)
    assert "either way" in one.band.basis
    free = scaling_law.run({**CHINCHILLA, **PAID, "usd_per_gpu_hour": 0})
    assert free.tokens_per_usd.value is None
    direct = scaling_law.run({**CHINCHILLA, **PAID, "flops_per_token": 12 * 70e9})
    assert direct.tokens_per_usd.value == pytest.approx(per_usd / 2)


def test_gain_over_a_known_curve() -> None:
    compute = [1e2, 1e3, 1e4, 1e5, 1e6]
    loss = [1.7 + 2 * c**-0.1 for c in compute]
    call = {"baseline_eflop": compute, "baseline_loss": loss, "loss_now": loss[2]}
    result = compute_equivalent_gain.run({**call, "used_eflop": 5e3, "paid_usd": 1000})
    assert result.main.value == pytest.approx(2, rel=1e-3)
    assert result.baseline_needs_eflop.value == pytest.approx(1e4, rel=1e-3)
    assert result.gain_per_usd.value == pytest.approx(0.002, rel=1e-3)
    assert result.fit_exponent.value == pytest.approx(0.1, rel=1e-2)
    assert result.fit_floor.value == pytest.approx(1.7, abs=1e-2)
    assert "left out" in result.band.basis
    assert not result.warnings
    beyond = compute_equivalent_gain.run({**call, "loss_now": 2.0, "used_eflop": 5e3})
    assert "extrapolated" in beyond.warnings[0]
    below = compute_equivalent_gain.run({**call, "loss_now": 1.6, "used_eflop": 5e3})
    assert below.main.value is None
    assert "floor" in below.sentence


def test_the_band_of_a_gain_leaves_runs_out() -> None:
    call = {
        "baseline_eflop": [100, 1000, 1e4, 1e5, 1e6], "baseline_loss": [3.0, 2.7, 2.5, 2.36, 2.27],
        "loss_now": 2.4, "used_eflop": 3e4,
    }  # fmt: skip
    result = compute_equivalent_gain.run(call)
    ends = []
    for out in range(5):
        kept = {
            name: [v for i, v in enumerate(call[name]) if i != out]
            for name in ("baseline_eflop", "baseline_loss")
        }
        one = compute_equivalent_gain.run({**call, **kept})
        assert one.main.low is None
        assert one.band.basis == "each input alone 10 % either way, losses 1 %"
        moved = {swing.parameter: swing for swing in one.sensitivity}
        assert moved["loss_now"].low_input == pytest.approx(0.99 * 2.4)
        assert moved["used_eflop"].low_input == pytest.approx(0.9 * 3e4)
        ends.append(one.main.value)
    ends.append(result.main.value)
    assert (result.main.low, result.main.high) == (min(ends), max(ends))


@pytest.mark.parametrize(
    ("compute", "loss", "where"),
    [
        ([1, 2, 3], [3, 2, 1], "baseline_eflop"),
        ([1, 2, 3, 4], [3, 2, 1], "baseline_loss"),
        ([1, 1, 1, 1], [4, 3, 2, 1], "baseline_eflop"),
    ],
)
def test_a_baseline_must_hold_a_curve(compute: list[float], loss: list[float], where: str) -> None:
    with pytest.raises(UserError) as caught:
        compute_equivalent_gain.run(
            {"baseline_eflop": compute, "baseline_loss": loss, "loss_now": 1, "used_eflop": 1}
        )
    assert caught.value.where == where


def test_measured_ranks_speak_for_64_times_as_many() -> None:
    call: dict[str, Any] = {"cv_ratio": 0.05, "observed_ranks": 1024, "mean_ms": 100}
    last = expected_max.run({**call, "ranks": 64 * 1024})
    assert last.main.value is not None
    assert "extrapolated from 1,024 ranks to 65,536" in last.warnings
    assert last.bad_rank_upper_ratio.value == pytest.approx(3 / 1024)
    beyond = expected_max.run({**call, "ranks": 64 * 1024 + 1})
    for name in ("slowdown", "tax_ratio", "expected_max_ms"):
        assert beyond.measures()[name].value is None
    assert "more than 64 times the 1,024 measured" in beyond.sentence
    assert "fault model" in beyond.band.basis
    nobody_asked = expected_max.run({"cv_ratio": 0.05, "ranks": 64 * 1024 + 1})
    assert nobody_asked.main.value is not None


def test_a_fault_model_adds_the_bad_ranks() -> None:
    call: dict[str, Any] = {"ranks": 10_000, "cv_ratio": 0.05, "distribution": "normal"}
    faults: dict[str, Any] = {"bad_rank_ratio": 1e-4, "bad_slowdown": 2}
    plain = expected_max.run(call).main.value
    result = expected_max.run({**call, "observed_ranks": 100, **faults})
    bad = 1 - (1 - 1e-4) ** 10_000
    assert result.any_bad_ratio.value == pytest.approx(bad)
    assert result.main.value == pytest.approx(plain + bad * (2 - plain))
    slight = expected_max.run({**call, "bad_rank_ratio": 1e-4, "bad_slowdown": 1.01})
    assert slight.main.value == plain
    for name in faults:
        with pytest.raises(UserError) as caught:
            expected_max.run({**call, name: faults[name]})
        assert caught.value.where in set(faults) - {name}
