"""Bandwidth of recorded collectives and of benchmark sweeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.collectives.calls import Call
from steptax.app.compute.collectives.recorded_bandwidth import (
    BenchRow,
    BenchSweep,
    bandwidth_by_size,
    bench_sweeps,
    shares_of_best,
)


def call(seq: int, rank: int, us: int, *, size: int = 10**9, n: int | None = 4) -> Call:
    return Call("0x1", "all_reduce", seq, rank, bytes=size, n_ranks=n, duration_us=us)


class TestRecorded:
    def test_the_shortest_time_is_without_waiting(self) -> None:
        calls = [call(s, r, us) for s in range(3) for r, us in enumerate((9000, 9000, 5000, 9000))]
        (found,) = bandwidth_by_size(calls)
        # 10^9 bytes in 5 ms are 200 GB/s, times 2 x 3 / 4.
        assert found.busbw.value == pytest.approx(300.0)
        assert found.busbw_with_waiting.value == pytest.approx(300.0 * 5 / 9)
        assert (found.operations, found.n_ranks) == (3, 4)
        assert found.busbw.warnings == ()

    def test_absent_ranks_are_said(self) -> None:
        (found,) = bandwidth_by_size([call(0, 0, 5000), call(0, 1, 6000)])
        assert "2 of 4 ranks" in found.busbw.warnings[0]

    def test_what_has_no_bus_bandwidth(self) -> None:
        unknown = call(0, 0, 5000, n=None)
        barrier = Call("0x1", "barrier", 0, 0, bytes=8, n_ranks=4, duration_us=9)
        found = {b.op: b.busbw for b in bandwidth_by_size([unknown, barrier])}
        assert found["all_reduce"].reason == "the number of ranks is not recorded"
        assert "no bus bandwidth for 'barrier'" in (found["barrier"].reason or "")

    def test_without_time_or_size_there_is_none(self) -> None:
        assert bandwidth_by_size([Call("0", "all_reduce", 0, 0, bytes=8, n_ranks=2)]) == []
        assert bandwidth_by_size([Call("0", "all_reduce", 0, 0, n_ranks=2, duration_us=8)]) == []


class TestSharesOfBest:
    def test_each_communicator_is_held_against_its_own_best(self) -> None:
        calls = [
            Call(comm, op, seq, rank, bytes=10**6, n_ranks=2, duration_us=us)
            for comm, op, seq, us in (("a", "all_reduce", 0, 100), ("b", "all_reduce", 0, 400))
            for rank in range(2)
        ]
        calls += [
            Call("a", "all_gather", 0, r, bytes=10**6, n_ranks=2, duration_us=250) for r in range(2)
        ]
        found = bandwidth_by_size(calls)
        shares = {
            (f.comm_id, f.op): s.value for f, s in zip(found, shares_of_best(found), strict=True)
        }
        # An all-gather moves half of what an all-reduce does: 1/2 x 100 / 250.
        assert shares == pytest.approx(
            {("a", "all_gather"): 0.2, ("a", "all_reduce"): 1.0, ("b", "all_reduce"): 1.0}
        )

    def test_what_has_no_bandwidth_has_no_share(self) -> None:
        (share,) = shares_of_best(bandwidth_by_size([call(0, 0, 5000, n=None)]))
        assert share.value is None
        assert share.reason == "the number of ranks is not recorded"

    @given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8, unique=True))
    def test_the_best_is_one_and_all_are_at_most_one(self, times: list[int]) -> None:
        calls = [call(0, rank, us, size=8 * us**2) for us in times for rank in range(4)]
        shares = [s.value or 0.0 for s in shares_of_best(bandwidth_by_size(calls))]
        assert max(shares) == 1.0
        assert min(shares) > 0.0


def bench(
    size: int, time_us: float, algbw: float, busbw: float, *, ranks: int = 16, wrong: int | None = 0
) -> list[BenchRow]:
    return [
        BenchRow("run", f"all_reduce {metric}", str(size), "float", value, ranks, 2, wrong)
        for metric, value in (("time", time_us), ("algbw", algbw), ("busbw", busbw))
        if value
    ]


def sweep(*rows: list[BenchRow]) -> BenchSweep:
    (found,) = bench_sweeps([row for size in rows for row in size])
    return found


class TestSweeps:
    def test_the_largest_size_is_the_bandwidth(self) -> None:
        found = sweep(
            bench(1 << 23, 310.0, 27.06, 50.74),
            bench(1 << 29, 6100.0, 88.01, 165.02),
            bench(1 << 30, 11900.0, 90.23, 169.18),
        )
        assert found.busbw.value == pytest.approx(169.18, abs=0.01)
        assert found.algbw.value == pytest.approx(90.23, abs=0.01)
        assert found.busbw.warnings == ()
        assert [p.agrees for p in found.points] == [True, True, True]
        assert (found.ranks, found.nodes) == (16, 2)

    def test_a_sweep_that_still_rises_says_so(self) -> None:
        found = sweep(bench(1 << 20, 100.0, 10.49, 19.66), bench(1 << 21, 110.0, 19.07, 35.75))
        assert "still rising" in found.busbw.warnings[0]

    def test_a_printed_figure_that_does_not_follow_is_said(self) -> None:
        # 2.30 is the bus bandwidth of two ranks; for four it would be 3.44.
        found = sweep(bench(134_217_728, 58_479.5, 2.30, 2.30, ranks=4))
        assert found.points[0].agrees is False
        assert found.points[0].busbw_recomputed.value == pytest.approx(3.4427, rel=1e-4)
        assert "another operation or rank count" in found.warnings[0]

    def test_wrong_results_are_no_bandwidth(self) -> None:
        found = sweep(
            bench(1 << 29, 6100.0, 88.01, 165.02), bench(1 << 30, 11900.0, 90.23, 169.18, wrong=3)
        )
        assert found.busbw.value == pytest.approx(165.02, abs=0.01)
        assert "wrong results at 1 size," in found.warnings[0]
        assert sweep(bench(1 << 30, 11900.0, 90.23, 169.18, wrong=3)).busbw.value is None

    def test_one_rank_communicates_nothing(self) -> None:
        found = sweep(bench(1 << 30, 24.9, 43046.0, 0.0, ranks=1))
        assert found.busbw.reason == "one rank: nothing was communicated"

    def test_no_bytes_have_no_bandwidth(self) -> None:
        found = sweep(bench(0, 35.2, 0.0, 0.0))
        assert found.busbw.value is None
        assert found.points[0].busbw_recomputed.reason == "no bytes were moved"

    def test_an_operation_that_is_not_known_has_none(self) -> None:
        rows = [BenchRow("run", "unknown time", "1024", "float", 9.0, 8)]
        (found,) = bench_sweeps(rows)
        assert "no bus bandwidth" in (found.busbw.reason or "")

    def test_places_types_and_variants_are_sweeps_of_their_own(self) -> None:
        tests = ("all_reduce time", "all_reduce time in place", "reduce (max, root 3) time")
        rows = [BenchRow("run", test, "8", "float", 9.0, 2) for test in tests]
        rows.append(BenchRow("run", "all_reduce time", "8", "half", 9.0, 2))
        rows.append(BenchRow("run", "gemm", "1024x1024", "half", 9.0))
        assert {(s.test, s.dtype) for s in bench_sweeps(rows)} == {
            ("all_reduce", "float"),
            ("all_reduce in place", "float"),
            ("reduce (max, root 3)", "float"),
            ("all_reduce", "half"),
        }


@given(st.integers(2, 512), st.floats(10, 1e6), st.integers(1 << 20, 1 << 34))
def test_what_the_tool_would_print_agrees(ranks: int, time_us: float, size: int) -> None:
    algbw = size / time_us / 1e3
    printed = round(algbw * 2 * (ranks - 1) / ranks, 2)
    found = sweep(bench(size, time_us, round(algbw, 2), printed, ranks=ranks))
    assert found.points[0].agrees is (True if printed else None)
