"""Who holds up a hang: each kind of evidence, victims, cycles, and what is no verdict."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.collectives.calls import ALL_RANKS, Call, GroupState, Scope
from steptax.app.compute.hang.holders import ASK_AGAIN, SNAPSHOT, Hang, find_hang


def states(
    *progress: tuple[int, int], comm: str = "7", ranks: list[int] | None = None, **more: Any
) -> list[GroupState]:
    """A communicator: newest operation issued and ended, by rank."""
    ranks = list(range(len(progress))) if ranks is None else ranks
    members = frozenset(more.pop("members", ranks))
    return [
        GroupState(
            *(comm, rank),
            members=members,
            last_enqueued=enqueued,
            last_completed=completed,
            **more,
        )
        for rank, (enqueued, completed) in zip(ranks, progress, strict=True)
    ]


def calls(comm: str, op: str, seqs: range, ranks: list[int], **more: Any) -> list[Call]:
    return [Call(comm, op, seq, rank, **more) for seq in seqs for rank in ranks]


def who(hang: Hang) -> dict[int, tuple[str, ...]]:
    return {s.rank: s.kinds for s in hang.suspects}


class TestBehind:
    def test_the_rank_that_issued_less_holds_up_the_others(self) -> None:
        hang = find_hang(states((9, 5), (9, 5), (5, 5), (9, 5), name="TP"))
        assert who(hang) == {2: ("behind",)}
        assert hang.waiting == (0, 1, 3)
        assert hang.verdict == "Rank 2 holds up the others: ranks 0, 1 and 3 wait."
        assert hang.suspects[0].evidence == (
            "in TP (7) it issued operations up to 5; ranks 0, 1 and 3 issued up to 4 more and wait",
        )
        assert hang.pending == ("TP (7)",)
        assert hang.assumptions == (SNAPSHOT,)
        assert (hang.recorded_ranks, hang.expected_ranks) == (4, 4)

    def test_a_rank_that_is_behind_because_it_waits_is_a_victim(self) -> None:
        # Rank 1 waits for rank 2 in B and is therefore behind in A.
        hang = find_hang(
            [
                *states((9, 5), (5, 5), comm="A", ranks=[0, 1]),
                *states((3, 2), (2, 2), comm="B", ranks=[1, 2]),
            ]
        )
        assert who(hang) == {2: ("behind",)}
        assert hang.waiting == (0, 1)

    def test_ranks_that_wait_for_one_another_called_in_different_orders(self) -> None:
        hang = find_hang(
            [
                *states((6, 5), (5, 5), comm="A", ranks=[0, 1]),
                *states((2, 2), (3, 2), comm="B", ranks=[0, 1]),
            ]
        )
        assert who(hang) == {}
        assert "Ranks 0 and 1 wait for one another" in hang.verdict
        assert "different orders" in hang.verdict

    def test_a_peer_whose_operations_have_all_ended_waits_for_nobody(self) -> None:
        # A root may leave a broadcast before the others.
        hang = find_hang(states((9, 9), (5, 5)))
        assert who(hang) == {}
        assert hang.verdict.startswith("Nothing hangs")

    def test_numbers_of_sends_and_receives_are_not_compared(self) -> None:
        hang = find_hang(states((90, 88), (20, 18)), [Call("7", "send 0->1", 90, 0)])
        assert who(hang) == {}
        assert any("sends or receives" in text for text in hang.assumptions)


class TestDevice:
    def test_a_rank_that_missed_the_end_of_what_needed_it(self) -> None:
        told = states((9, 8), (9, 8), (9, 3), (9, 8))
        hang = find_hang(told, calls("7", "all_reduce", range(4, 10), [0, 1, 2, 3]))
        assert who(hang) == {2: ("device",)}
        assert "operations 4 to 8 end" in hang.suspects[0].evidence[0]

    def test_a_broadcast_may_end_without_it(self) -> None:
        told = states((9, 8), (9, 3))
        assert who(find_hang(told, calls("7", "broadcast", range(4, 10), [0, 1]))) == {}

    def test_a_watchdog_may_be_one_operation_late(self) -> None:
        told = states((9, 8), (9, 7))
        assert who(find_hang(told, calls("7", "all_reduce", range(4, 10), [0, 1]))) == {}

    def test_what_the_record_does_not_name_proves_nothing(self) -> None:
        assert who(find_hang(states((9, 8), (9, 3)))) == {}

    def test_a_rank_can_be_behind_and_have_lost_its_device(self) -> None:
        told = states((9, 6), (7, 3), (9, 6))
        hang = find_hang(told, calls("7", "all_gather", range(1, 10), [0, 1, 2]))
        assert who(hang) == {1: ("behind", "device")}


class TestAbsent:
    def test_a_member_without_a_record_that_all_others_wait_for(self) -> None:
        hang = find_hang(states((9, 8), (9, 8), ranks=[0, 1], members=[0, 1, 2]))
        assert hang.absent == (2,)
        assert who(hang) == {2: ("absent",)}
        assert hang.verdict.endswith("Nothing was recorded of rank 2.")
        assert (hang.recorded_ranks, hang.expected_ranks) == (2, 3)

    def test_it_is_not_blamed_where_a_recorded_rank_is_behind(self) -> None:
        hang = find_hang(states((9, 8), (8, 8), ranks=[0, 1], members=[0, 1, 2]))
        assert who(hang) == {1: ("behind",)}
        assert hang.absent == (2,)


class TestMismatch:
    def test_another_operation_under_the_same_number(self) -> None:
        told = states((9, 8), (9, 8), (9, 8))
        same = calls("7", "all_reduce", range(9, 10), [0, 2])
        hang = find_hang(told, [*same, Call("7", "all_gather", 9, 1)])
        assert who(hang) == {1: ("differs",)}
        (mismatch,) = hang.mismatches
        assert (mismatch.seq, mismatch.field, mismatch.odd_ranks) == (9, "operation", (1,))
        assert mismatch.said == (("all_reduce", (0, 2)), ("all_gather", (1,)))

    def test_other_sizes_or_types(self) -> None:
        told = states((9, 8), (9, 8), (9, 8))
        base = [Call("7", "all_reduce", 9, r, dtype="Float", shape="[[4]]") for r in (0, 1)]
        odd = Call("7", "all_reduce", 9, 2, dtype="Float", shape="[[5]]")
        assert find_hang(told, [*base, odd]).mismatches[0].field == "sizes"
        odd = Call("7", "all_reduce", 9, 2, dtype="Half", shape="[[4]]")
        assert find_hang(told, [*base, odd]).mismatches[0].field == "type"

    def test_parts_of_an_all_to_all_may_differ(self) -> None:
        parts = [Call("7", "all_to_all", 9, r, shape=f"[[{r}]]") for r in range(3)]
        assert find_hang(states((9, 8), (9, 8), (9, 8)), parts).mismatches == ()

    def test_of_two_ranks_neither_is_the_odd_one(self) -> None:
        pair = [Call("7", "all_reduce", 9, 0), Call("7", "all_gather", 9, 1)]
        hang = find_hang(states((9, 8), (9, 8)), pair)
        assert hang.mismatches[0].odd_ranks == ()
        assert who(hang) == {}

    def test_only_the_first_difference_of_a_communicator_is_told(self) -> None:
        different = [Call("7", op, seq, r) for seq in (4, 5) for r, op in ((0, "a"), (1, "b"))]
        assert [m.seq for m in find_hang(states((5, 3), (5, 3)), different).mismatches] == [4]


class TestAskedWhileItRuns:
    def told(self, rank: int, **more: Any) -> GroupState:
        return GroupState("0xcf", rank, Scope.COMMUNICATOR, **more)

    def test_counts_states_and_silence(self) -> None:
        hang = find_hang(
            [
                self.told(ALL_RANKS, op_counts={"all_reduce": 41}, state="MISMATCH"),
                self.told(3, op_counts={"all_reduce": 40}, place="10.0.0.2, process 9"),
                self.told(5, state="UNRESPONSIVE"),
                self.told(6, state="RUNNING", op_counts={"all_reduce": 41}),
                self.told(7, state="ERROR: System error"),
            ]
        )
        assert who(hang) == {3: ("behind",), 5: ("silent",), 7: ("silent",)}
        assert hang.suspects[0].label == "rank 3 of 0xcf (10.0.0.2, process 9)"
        # What may pass is not called a hang.
        assert hang.verdict.startswith("Stand out:")
        assert hang.assumptions == (ASK_AGAIN,)


class TestNoVerdict:
    def test_nothing_to_go_by(self) -> None:
        hang = find_hang([GroupState("7", 0)], [Call("7", "all_reduce", 1, 0)])
        assert hang.reason is not None
        assert hang.verdict.startswith("No verdict:")

    def test_everything_has_ended(self) -> None:
        assert find_hang(states((9, 9), (9, 9))).verdict.startswith("Nothing hangs")

    def test_everybody_is_there_and_it_does_not_end(self) -> None:
        hang = find_hang(states((9, 8), (9, 8), name="DP"))
        assert who(hang) == {}
        assert "hangs in the transport or on a device" in hang.verdict
        assert "DP (7)" in hang.verdict


@settings(max_examples=80)
@given(
    ranks=st.integers(2, 24),
    done=st.integers(0, 1000),
    lags=st.dictionaries(st.integers(0, 23), st.integers(1, 20), min_size=1, max_size=4),
)
def test_those_that_stopped_are_named_and_nobody_else(
    ranks: int, done: int, lags: dict[int, int]
) -> None:
    """One communicator in which some ranks stopped: all operations before have ended."""
    stopped = {rank % ranks for rank in lags}
    newest = done + 3
    told = states(*((done, done) if r in stopped else (newest, done) for r in range(ranks)))
    hang = find_hang(told, calls("7", "all_reduce", range(done + 1, newest + 1), []))
    if len(stopped) == ranks:
        assert who(hang) == {}
    else:
        assert set(who(hang)) == stopped
        assert set(hang.waiting) == set(range(ranks)) - stopped
