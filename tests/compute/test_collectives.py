"""Bandwidth factors, published figures, and the timing models of collectives."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.collectives.bus_bandwidth import (
    Collective,
    Point,
    algbw_gb_per_s,
    busbw_factor,
    busbw_gb_per_s,
    duration_s_at,
    headline_busbw,
    nic_gb_per_s,
    ranks_from_bandwidths,
    wire_share,
)
from steptax.app.compute.collectives.references import (
    expected_busbw,
    node_networks,
    references,
)
from steptax.app.compute.collectives.times import (
    Algorithm,
    Protocol,
    double_tree_all_reduce_s,
    halving_doubling_all_reduce_s,
    hierarchical_all_reduce_s,
    nccl_latency_us,
    nccl_link_gb_per_s,
    ring_all_reduce_s,
    ring_gather_s,
    stragglar,
    stragglar_rounds,
)
from steptax.app.compute.mfu.device_table import device
from steptax.app.errors import UserError

GIB = 2**30
AR = Collective.ALL_REDUCE
RANKS = st.integers(2, 20_000)
SIZES = st.floats(1, 1e12)
SPEEDS = st.floats(1e6, 1e13)
ALPHAS = st.floats(0, 1e-3)


@pytest.mark.parametrize(
    ("ranks", "speedup"),
    [
        (4, 1.1265), (8, 1.3629), (16, 1.5646), (32, 1.7183), (64, 1.8263), (128, 1.8970),
        (256, 1.9409), (6, 1.1921), (12, 1.3462), (24, 1.6348), (48, 1.6168), (96, 1.7430),
        (192, 1.8289),
    ],
)  # fmt: skip
def test_c10_stragglar_against_a_ring(ranks: int, speedup: float) -> None:
    times = stragglar(ranks, GIB, 3e-6, 450 * GIB, delay_s=1.0)
    # 24 ranks give 1.63485, of which the publication cuts the last digit off.
    assert times.speedup == pytest.approx(speedup, abs=1e-4 if ranks == 24 else 5.1e-5)


def test_c10_stragglar_times_of_eight_ranks() -> None:
    times = stragglar(8, GIB, 3e-6, 450 * GIB, delay_s=1.923e-3)
    assert times.ring_s * 1e3 == pytest.approx(3.931, abs=5e-4)
    assert times.stragglar_s * 1e3 == pytest.approx(2.884, abs=5e-4)
    assert times.hidden_s * 1e3 == pytest.approx(1.923, abs=5e-4)


def test_c12_bus_bandwidth_of_eight_ranks() -> None:
    assert 275 * busbw_factor(AR, 8) == 481.25
    seconds = duration_s_at(AR, 8, 8 * GIB, 473.1)
    assert seconds * 1e3 == pytest.approx(31.77, abs=5e-3)
    assert algbw_gb_per_s(8 * GIB, seconds) == pytest.approx(270.34, abs=5e-3)


def test_case_18_the_largest_size_speaks_for_the_network(shared: Callable[[str], Path]) -> None:
    folder = "cases/18-nccl-algbw-vs-busbw"
    text = shared(f"{folder}/expected.md").read_text()
    wanted = json.loads(text.split("```json")[1].split("```")[0])
    log = shared(f"{folder}/all_reduce.log").read_text()
    rows = re.findall(r"^ +(\d+) +\d+ +float +sum +-1 +([\d.]+) +([\d.]+) +([\d.]+)", log, re.M)
    points = [Point(int(size), float(us) / 1e6) for size, us, _, _ in rows]
    ranks, operation = wanted["ranks"], Collective.read(wanted["operation"])
    for point, (_, _, algbw, busbw) in zip(points, rows, strict=True):
        own = busbw_gb_per_s(operation, ranks, point.size_bytes, point.duration_s)
        assert own == pytest.approx(float(busbw), abs=0.011)
        implied = ranks_from_bandwidths(operation, float(busbw), float(algbw))
        assert implied.value == ranks
    headline = headline_busbw(operation, ranks, points)
    assert headline.value == pytest.approx(wanted["busbw_at_1GiB_gbytes_s"], abs=5e-3)
    assert not headline.warnings
    assert headline.value is not None
    assert headline.value * 8 == pytest.approx(wanted["busbw_gbits_s"], abs=0.05)
    share = wire_share(headline.value, 400)
    assert share.value == pytest.approx(wanted["share_of_400_gbytes_s_wire"], abs=5e-4)
    assert headline.value > wanted["avg_busbw_all_sizes"]


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        (Collective.ALL_REDUCE, 1.75),
        (Collective.ALL_GATHER, 0.875),
        (Collective.REDUCE_SCATTER, 0.875),
        (Collective.ALL_TO_ALL, 0.875),
        (Collective.BROADCAST, 1),
        (Collective.REDUCE, 1),
        (Collective.SEND_RECV, 1),
    ],
)
def test_factors_at_eight_ranks(collective: Collective, factor: float) -> None:
    assert busbw_factor(collective, 8) == factor


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("AllReduce", Collective.ALL_REDUCE),
        ("all_reduce_perf", Collective.ALL_REDUCE),
        ("ncclAllGather", Collective.ALL_GATHER),
        ("_allgather_base", Collective.ALL_GATHER),
        ("REDUCE_SCATTER", Collective.REDUCE_SCATTER),
        ("alltoall_perf", Collective.ALL_TO_ALL),
        ("sendrecv_perf", Collective.SEND_RECV),
    ],
)
def test_collectives_by_the_names_of_their_tools(name: str, collective: Collective) -> None:
    assert Collective.read(name) is collective


def test_other_collectives_are_refused() -> None:
    with pytest.raises(UserError, match="all_reduce"):
        Collective.read("barrier")


@given(RANKS, SIZES, st.floats(1e-9, 1e4))
def test_an_all_reduce_moves_at_least_its_size(ranks: int, size: float, seconds: float) -> None:
    algbw = algbw_gb_per_s(size, seconds)
    assert algbw <= busbw_gb_per_s(AR, ranks, size, seconds) * (1 + 1e-12)
    assert busbw_gb_per_s(AR, ranks, size, seconds) <= 2 * algbw
    for gathered in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
        assert busbw_gb_per_s(gathered, ranks, size, seconds) <= algbw


@given(st.sampled_from(list(Collective)), RANKS, SIZES, st.floats(1e-9, 1e4))
def test_time_and_bus_bandwidth_are_inverse(
    collective: Collective, ranks: int, size: float, seconds: float
) -> None:
    busbw = busbw_gb_per_s(collective, ranks, size, seconds)
    assert duration_s_at(collective, ranks, size, busbw) == pytest.approx(seconds)


@given(
    st.sampled_from([Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.ALL_TO_ALL]),
    st.integers(2, 2000),
    st.floats(1, 1000),
)
def test_printed_bandwidths_bracket_the_ranks(
    collective: Collective, ranks: int, algbw: float
) -> None:
    printed = round(algbw * busbw_factor(collective, ranks), 2), round(algbw, 2)
    implied = ranks_from_bandwidths(collective, *printed)
    if implied.value is None:
        assert "do not tell" in (implied.reason or "")
    else:
        assert implied.low is not None
        assert implied.high is not None
        assert implied.low <= ranks <= implied.high
        assert implied.low <= implied.value <= implied.high


def test_ranks_cannot_be_told_where_the_factor_is_one_or_impossible() -> None:
    assert ranks_from_bandwidths(Collective.BROADCAST, 10, 10).value is None
    too_much = ranks_from_bandwidths(AR, 250, 100)
    assert too_much.value is None
    assert "does not occur" in (too_much.reason or "")
    assert ranks_from_bandwidths(AR, 50, 100).value is None


def test_a_sweep_that_still_rises_says_so() -> None:
    rising = [Point(GIB, 0.01), Point(GIB // 2, 0.006)]
    assert "still rising" in headline_busbw(AR, 8, rising).warnings[0]
    assert "one size only" in headline_busbw(AR, 8, rising[:1]).warnings[0]
    assert headline_busbw(AR, 8, []).reason == "no size was measured"


def test_more_than_the_wire_is_not_a_share() -> None:
    over = wire_share(480, 450)
    assert over.value is None
    assert "more than the wire" in (over.reason or "")
    in_switch = wire_share(480, 450, in_network_reduction=True)
    assert "in the switch" in (in_switch.reason or "")


def test_card_share_of_a_hierarchical_ring() -> None:
    own = nic_gb_per_s(381, nodes=4, ranks=32)
    assert own == pytest.approx(37, abs=0.2)
    assert own / 50 == pytest.approx(0.74, abs=5e-3)
    with pytest.raises(UserError, match="ranks"):
        nic_gb_per_s(381, nodes=4, ranks=3)


def test_published_figures_have_their_source() -> None:
    found = expected_busbw("H100-SXM", AR, nodes=1, ranks=8)
    assert {(r.algorithm, r.busbw_gb_per_s) for r in found} == {("ring", 370), ("nvls", 480)}
    assert expected_busbw("H100-SXM", Collective.BROADCAST, nodes=1, ranks=8) == ()
    for row in references():
        assert row.source
        assert device(row.device)
    networks = {n.system: n.gb_per_s for n in node_networks()}
    assert networks["DGX H100"] == 400
    for network in node_networks():
        assert network.source
        if network.nics and network.gbit_per_s_per_nic:
            assert network.gb_per_s == network.nics * network.gbit_per_s_per_nic / 8


@given(RANKS, SIZES, ALPHAS, SPEEDS)
def test_a_ring_reaches_the_line_rate_without_latency(
    ranks: int, size: float, alpha: float, speed: float
) -> None:
    free = ring_all_reduce_s(ranks, size, 0, speed)
    assert busbw_gb_per_s(AR, ranks, size, free) == pytest.approx(speed / 1e9)
    late = ring_all_reduce_s(ranks, size, alpha, speed)
    assert late >= free
    assert late == pytest.approx(2 * ring_gather_s(ranks, size, alpha, speed))


@given(st.integers(1, 14), SIZES, ALPHAS, SPEEDS)
def test_halving_doubling_never_loses_to_a_ring(
    power: int, size: float, alpha: float, speed: float
) -> None:
    ranks = 2**power
    faster = halving_doubling_all_reduce_s(ranks, size, alpha, speed)
    assert faster <= ring_all_reduce_s(ranks, size, alpha, speed) * (1 + 1e-9)


@given(st.integers(2, 16), st.integers(1, 512), SIZES, SPEEDS, st.floats(1, 100))
def test_a_hierarchy_is_a_ring_where_there_is_one_level(
    per_node: int, nodes: int, size: float, speed: float, ratio: float
) -> None:
    one_node = hierarchical_all_reduce_s(
        per_node, 1, size, node_bytes_per_s=speed, net_bytes_per_s=speed / ratio
    )
    assert one_node == pytest.approx(ring_all_reduce_s(per_node, size, 0, speed))
    many = hierarchical_all_reduce_s(
        per_node, nodes, size, node_bytes_per_s=speed, net_bytes_per_s=speed / ratio
    )
    assert many >= one_node * (1 - 1e-12)
    expected = 2 * (per_node - 1) / per_node * size / speed
    expected += 2 * (nodes - 1) / nodes * size / per_node / (speed / ratio)
    assert many == pytest.approx(expected)


def test_a_double_tree_grows_with_the_logarithm_of_nodes() -> None:
    def seconds(nodes: int) -> float:
        return double_tree_all_reduce_s(
            nodes, 8, 1024, alpha_net_s=1e-5, alpha_node_s=1e-6, bytes_per_s=1e11
        )

    assert seconds(1) == pytest.approx(2 * 7e-6 + 2 * 1024 / 1e11)
    assert seconds(64) - seconds(8) == pytest.approx(2 * 3e-5)


@pytest.mark.parametrize(
    ("collective", "algorithm", "protocol", "nodes", "microseconds"),
    [
        (AR, Algorithm.RING, Protocol.LL, 1, 6.6 + 14 * 0.6),
        (AR, Algorithm.RING, Protocol.LL128, 1, 14 + 14 * 1.9),
        (AR, Algorithm.RING, Protocol.SIMPLE, 1, 8.4 + 14 * 3.4),
        (AR, Algorithm.RING, Protocol.SIMPLE, 2, 8.4 + 28 * 3.4 + 2 * 14),
        (Collective.ALL_GATHER, Algorithm.RING, Protocol.LL, 2, 6.6 + 14 * 0.6 + 2.7),
        (AR, Algorithm.TREE, Protocol.LL, 4, 6.8 + 2 * (7 * 0.6 + 2 * 5.0)),
        (AR, Algorithm.TREE, Protocol.LL128, 1, 14 + 2 * 7 * 1.25),
    ],
)
def test_nccl_latency(
    collective: Collective,
    algorithm: Algorithm,
    protocol: Protocol,
    nodes: int,
    microseconds: float,
) -> None:
    found = nccl_latency_us(collective, algorithm, protocol, ranks=8 * nodes, nodes=nodes)
    assert found == pytest.approx(microseconds)


def test_bandwidth_that_nccl_credits() -> None:
    assert nccl_link_gb_per_s(450, Algorithm.RING) == 450
    assert nccl_link_gb_per_s(450, Algorithm.TREE) == pytest.approx(414)
    assert nccl_link_gb_per_s(450, Algorithm.NVLS, "Hopper") == pytest.approx(382.5)
    assert nccl_link_gb_per_s(900, Algorithm.NVLS, "blackwell") == pytest.approx(666)
    with pytest.raises(UserError, match="ampere"):
        nccl_link_gb_per_s(300, Algorithm.NVLS, "ampere")


@given(
    st.sampled_from([4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 192]),
    SIZES,
    ALPHAS,
    SPEEDS,
    st.floats(0, 10),
)
def test_a_longer_delay_never_makes_stragglar_slower(
    ranks: int, size: float, alpha: float, speed: float, delay: float
) -> None:
    soon, later = (stragglar(ranks, size, alpha, speed, d) for d in (delay, delay + 1))
    assert later.stragglar_s <= soon.stragglar_s
    assert soon.ring_s == later.ring_s
    enough = stragglar(ranks, size, alpha, speed, soon.hidden_s).stragglar_s
    assert enough == stragglar(ranks, size, alpha, speed, soon.hidden_s * 2 + 1).stragglar_s


@pytest.mark.parametrize(("ranks", "rounds"), [(4, 4), (8, 9), (256, 262), (6, 7), (192, 208)])
def test_stragglar_rounds(ranks: int, rounds: int) -> None:
    assert stragglar_rounds(ranks) == rounds


@pytest.mark.parametrize("ranks", [1, 2, 3, 10, 100])
def test_stragglar_has_no_other_schedule(ranks: int) -> None:
    with pytest.raises(UserError, match="power of two from 4"):
        stragglar_rounds(ranks)


@pytest.mark.parametrize(
    "refused",
    [
        lambda: busbw_factor(AR, 1),
        lambda: algbw_gb_per_s(0, 1),
        lambda: algbw_gb_per_s(1, 0),
        lambda: duration_s_at(AR, 8, 1, 0),
        lambda: ranks_from_bandwidths(AR, 0, 1),
        lambda: ring_all_reduce_s(1, 1, 0, 1),
        lambda: ring_gather_s(2, 1, -1, 1),
        lambda: ring_gather_s(2, 1, 0, 0),
        lambda: halving_doubling_all_reduce_s(6, 1, 0, 1),
        lambda: stragglar(8, 1, 0, 1, -1),
        lambda: nccl_latency_us(AR, Algorithm.RING, Protocol.LL, ranks=9, nodes=2),
        lambda: nccl_latency_us(AR, Algorithm.NVLS, Protocol.SIMPLE, ranks=8, nodes=1),
        lambda: nccl_latency_us(
            Collective.ALL_GATHER, Algorithm.TREE, Protocol.LL, ranks=8, nodes=1
        ),
        lambda: nccl_latency_us(
            Collective.BROADCAST, Algorithm.RING, Protocol.LL, ranks=8, nodes=1
        ),
    ],
)
def test_values_that_cannot_be_are_refused(refused: Callable[[], float]) -> None:
    with pytest.raises(UserError):
        refused()
