"""Who comes last: exact cases, what may not be named, and laws that hold for any arrivals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.collectives.arrivals import (
    MIN_JOINED,
    ArrivalBasis,
    CollectiveArrivals,
    collective_arrivals,
)
from steptax.app.compute.collectives.calls import Call, Scope
from steptax.app.compute.measure import Level


def spent(
    times: Sequence[Sequence[int | None]],
    *,
    n_ranks: int | None = None,
    op: str = "all_reduce",
    comm: str = "0x1",
) -> list[Call]:
    """Calls of [S][R] microseconds in the operation; None was not recorded."""
    return [
        Call(
            *(comm, op, seq, rank, Scope.COMMUNICATOR),
            n_ranks=n_ranks or len(row),
            duration_us=us,
        )
        for seq, row in enumerate(times)
        for rank, us in enumerate(row)
        if us is not None
    ]


def issued(
    moments: list[list[int]], *, op: str = "all_reduce", first_seq: int = 0, base: int = 10**15
) -> list[Call]:
    """Calls of [S][R] microseconds after ``base`` at which each rank issued the operation."""
    return [
        Call("0", op, first_seq + seq, rank, enqueued_us=base + us)
        for seq, row in enumerate(moments)
        for rank, us in enumerate(row)
    ]


def only(found: list[CollectiveArrivals]) -> CollectiveArrivals:
    (one,) = found
    return one


class TestByWaiting:
    def test_the_shortest_time_is_that_of_the_last_rank(self) -> None:
        # Rank 2 comes 300 us after the others, which wait for it.
        found = only(collective_arrivals(spent([[400, 400, 100, 400]] * 10)))
        assert found.basis is ArrivalBasis.WAITING
        assert found.late_rank == 2
        assert found.persistence.value == 1.0
        assert found.lateness.value == 300.0
        # Three ranks wait 300 us in each of ten operations.
        assert found.waiting.value == pytest.approx(9000.0)
        assert found.lateness.level is Level.TRACE
        assert found.verdict == (
            "Rank 2 of the communicator comes last in 10 of 10 all_reduce (100 %), 300 µs after "
            "the others; they wait 9.00 ms for it in all."
        )
        assert found.warnings == ()

    def test_a_rank_that_is_last_half_of_the_time_among_many(self) -> None:
        rng = np.random.default_rng(3)
        rows = []
        for n in range(40):
            late = 5 if n % 2 else int(rng.integers(0, 16))
            rows.append([900 if rank != late else 400 for rank in range(16)])
        found = only(collective_arrivals(spent(rows)))
        assert found.late_rank == 5
        assert found.persistence.value is not None
        assert 0.5 <= found.persistence.value < 0.7
        # In the other half nobody waits for rank 5, and then it is blamed for nothing.
        times = sum(row[5] == 400 for row in rows)
        assert found.waiting.value == pytest.approx(times * 15 * 500.0)

    def test_chance_is_no_verdict(self) -> None:
        rng = np.random.default_rng(1)
        found = only(collective_arrivals(spent(rng.integers(100, 900, (200, 4)).tolist())))
        assert found.late_rank is None
        assert "chance" in (found.reason or "")
        assert found.persistence.value is None
        assert found.persistence.reason == found.reason

    def test_two_ranks_need_more_than_a_few(self) -> None:
        # One of two is last three times of four by chance alone.
        rows = [[400, 100], [400, 100], [400, 100], [100, 400]] * 2
        assert only(collective_arrivals(spent(rows))).late_rank is None

    def test_less_than_the_noise_is_no_verdict(self) -> None:
        found = only(collective_arrivals(spent([[400, 396, 400, 400]] * 20)))
        assert found.late_rank is None
        assert "noise" in (found.reason or "")

    def test_equal_times_make_nobody_last(self) -> None:
        found = only(collective_arrivals(spent([[400, 400]] * 20)))
        assert found.last_share == ()
        assert found.late_rank is None

    def test_few_operations_are_no_verdict(self) -> None:
        found = only(collective_arrivals(spent([[400, 100, 400, 400]] * (MIN_JOINED - 1))))
        assert found.late_rank is None
        assert "fewer than" in (found.reason or "")

    def test_one_recorded_rank_has_nobody_to_be_compared_with(self) -> None:
        found = only(collective_arrivals(spent([[400]] * 20, n_ranks=8)))
        assert found.reason == ("one rank of 8 is recorded, so there is nobody to compare it with")
        assert found.absent == (1, 2, 3, 4, 5, 6, 7)

    def test_absent_ranks_and_lost_records_are_said(self) -> None:
        rows: list[list[int | None]] = [[400, 400, 100] for _ in range(10)]
        rows[9] = [400, None, 100]
        found = only(collective_arrivals(spent(rows, n_ranks=4)))
        assert found.late_rank == 2
        assert (found.joined, found.operations) == (9, 10)
        assert found.absent == (3,)
        assert any("1 of 4 ranks (3)" in w for w in found.warnings)
        assert any("1 of 10 operations" in w for w in found.warnings)
        assert dict(found.newest_seq) == {0: 9, 1: 8, 2: 9}

    def test_operations_and_communicators_are_judged_apart(self) -> None:
        calls = spent([[400, 400, 100]] * 10) + spent([[100, 400, 400]] * 10, op="all_gather")
        calls += spent([[400, 100, 400]] * 10, comm="0x2")
        found = {(a.comm_id, a.op): a.late_rank for a in collective_arrivals(calls)}
        assert found == {
            ("0x1", "all_gather"): 0,
            ("0x1", "all_reduce"): 2,
            ("0x2", "all_reduce"): 1,
        }

    def test_transfers_have_no_common_start(self) -> None:
        assert collective_arrivals([Call("0", "send 0->1", 1, 0, duration_us=5)]) == []

    def test_no_time_at_all(self) -> None:
        found = only(
            collective_arrivals([Call("0", "barrier", n, r) for n in range(9) for r in (0, 1)])
        )
        assert found.basis is None
        assert "no operation has" in (found.reason or "")


class TestByIssue:
    def test_late_and_not_always_late_is_no_clock(self) -> None:
        late = [[0, 90_000, 100, 50]] * 8
        on_time = [[40, 0, 10, 20]] * 8
        calls = issued(late) + issued(on_time, op="barrier", first_seq=50)
        found = {a.op: a for a in collective_arrivals(calls)}
        assert found["all_reduce"].basis is ArrivalBasis.ISSUE
        assert found["all_reduce"].late_rank == 1
        assert found["all_reduce"].lateness.value == pytest.approx(89_950.0)
        assert any("not late in some" in w for w in found["all_reduce"].warnings)

    def test_a_lateness_that_never_changes_may_be_the_clock(self) -> None:
        found = only(collective_arrivals(issued([[0, 90_000, 100, 50]] * 8)))
        assert found.late_rank == 1
        assert any("would look the same" in w for w in found.warnings)

    def test_within_what_clocks_differ_by_nobody_is_named(self) -> None:
        rows = [[0, 700, 10, 5]] * 20
        found = only(collective_arrivals(issued(rows)))
        assert found.late_rank is None
        assert "clocks may differ by 1.00 ms" in (found.reason or "")
        assert only(collective_arrivals(issued(rows), clock_us=100.0)).late_rank == 1

    def test_a_small_lateness_that_is_not_always_there_is_no_clock(self) -> None:
        calls = issued([[0, 700, 10, 5]] * 20)
        calls += issued([[5, 0, 10, 5]] * 20, op="barrier", first_seq=100)
        found = {a.op: a.late_rank for a in collective_arrivals(calls)}
        assert found == {"all_reduce": 1, "barrier": None}

    def test_moments_keep_their_microseconds(self) -> None:
        # 2^61 us: a double would round to 512 us.
        found = only(collective_arrivals(issued([[0, 1_111, 0]] * 9, base=2**61)))
        assert found.lateness.value == 1_111.0

    def test_time_spent_goes_before_clocks(self) -> None:
        calls = [
            Call("0", "all_reduce", seq, rank, duration_us=us, enqueued_us=10**15 + at)
            for seq in range(9)
            for rank, (us, at) in enumerate(((400, 0), (100, 300), (400, 9_000)))
        ]
        found = only(collective_arrivals(calls))
        assert (found.basis, found.late_rank) == (ArrivalBasis.WAITING, 1)


@settings(max_examples=60)
@given(
    ranks=st.integers(2, 12),
    joined=st.integers(MIN_JOINED, 30),
    late=st.integers(0, 11),
    by=st.integers(2_000, 10**6),
    seed=st.integers(0, 2**31),
)
def test_whoever_is_always_last_is_named_if_there_are_enough(
    ranks: int, joined: int, late: int, by: int, seed: int
) -> None:
    late %= ranks
    noise = np.random.default_rng(seed).integers(0, 900, (joined, ranks))
    arrival = noise.copy()
    arrival[:, late] += by
    transfer = 500
    times = (arrival.max(axis=1, keepdims=True) - arrival + transfer).tolist()
    found = only(collective_arrivals(spent(times)))
    # With two ranks eight times in a row are needed to be beyond chance (2 x 2^-8 < 1 %).
    if ranks * ranks ** -float(joined) <= 0.01:
        assert found.late_rank == late
        total = (arrival.max(axis=1, keepdims=True) - arrival).sum()
        assert found.waiting.value is not None
        assert 0 < found.waiting.value <= total * (1 + 1e-9)
        others = np.delete(arrival, late, axis=1)
        assert found.lateness.value == pytest.approx(
            float(np.median(arrival[:, late] - np.median(others, axis=1)))
        )
    else:
        assert found.late_rank is None


@settings(max_examples=40)
@given(st.permutations(list(range(5))), st.integers(0, 10**6))
def test_names_of_ranks_and_a_common_shift_change_nothing(order: list[int], shift: int) -> None:
    rows = [[0, 5_000 + 31 * n, 100, 50, 7 * n] for n in range(12)]
    plain = only(collective_arrivals(issued(rows)))
    moved = only(collective_arrivals(issued([[row[r] + shift for r in order] for row in rows])))
    assert plain.late_rank == 1
    assert moved.late_rank == order.index(1)
    assert moved.lateness.value == plain.lateness.value
    assert moved.waiting.value == pytest.approx(plain.waiting.value)
