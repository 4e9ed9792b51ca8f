"""Executed steps come in their order, and those that were redone are lost."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.compute.bill.attempts import History, history
from steptax.app.compute.bill.executions import read_steps
from steptax.app.compute.bill.job_events import Event, read_events

UNTIMED = settings(suppress_health_check=[HealthCheck.too_slow])


def steps(attempt: int, first: int, last: int, *, at: int, each: int = 10) -> list[dict[str, Any]]:
    return [
        {"attempt": attempt, "step": s, "start_us": at + each * (s - first), "duration_us": each}
        for s in range(first, last + 1)
    ]


def event(kind: str, start: int, attempt: int = 0, **more: Any) -> dict[str, Any]:
    return {"attempt": attempt, "start_us": start, "kind": kind, **more}


def lost(record: History) -> list[tuple[int, int]]:
    flags = record.steps.lost
    return list(
        zip(record.steps.attempt[flags].tolist(), record.steps.step[flags].tolist(), strict=True)
    )


def kinds(record: History) -> list[str]:
    return [finding.kind for finding in record.findings]


def test_steps_that_a_later_attempt_ran_again_are_lost() -> None:
    record = history([], steps(0, 1, 5, at=0) + steps(1, 4, 6, at=100))
    assert lost(record) == [(0, 4), (0, 5)]
    assert kinds(record) == ["inferred"]
    assert record.counts([0, 0, 1], [3, 4, 4]).tolist() == [True, False, True]


def test_a_real_log_with_a_restart(shared: Callable[[str], Path]) -> None:
    """The step counter goes back to the checkpoint; 20 steps of 20 s are run again."""
    rows: list[dict[str, Any]] = []
    with shared("cases/04-throughput-after-resume/steps.csv").open() as file:
        for row in csv.DictReader(file):
            rows.append(
                {"attempt": int(row["session"]) - 1, "step": int(row["step"]), "duration_us": 2e7}
            )
    record = history([], rows)
    assert [step for _, step in lost(record)] == list(range(81, 101))
    assert {attempt for attempt, _ in lost(record)} == {0}
    assert record.steps.duration_us[record.steps.lost].sum() == 400_000_000
    assert len(record.attempts) == 2


@pytest.mark.parametrize(
    "detail", ['{"step": 3}', "rolled back to step 3", "restored_step=3", "iteration: 3"]
)
@pytest.mark.parametrize("kind", ["rollback", "checkpoint_restore"])
def test_a_named_step_says_what_is_lost_before_anything_is_redone(kind: str, detail: str) -> None:
    record = history([event(kind, 60, 1, detail=detail)], steps(0, 1, 5, at=0))
    assert lost(record) == [(0, 4), (0, 5)]
    assert kinds(record) == []


def test_a_restore_concerns_what_was_executed_before_it_only() -> None:
    events = [event("rollback", 35, detail="step 1"), event("checkpoint_restore", 0, detail="0")]
    record = history(events, steps(0, 1, 3, at=0) + steps(0, 2, 4, at=40))
    assert lost(record) == [(0, 2), (0, 3)]
    assert record.steps.step.tolist() == [1, 2, 3, 2, 3, 4]
    first = history([event("checkpoint_restore", 5, detail="step 900")], steps(0, 901, 903, at=10))
    assert lost(first) == []


def test_a_return_without_its_step_is_named() -> None:
    record = history([event("rollback", 60, 1, detail="loss spike")], steps(0, 1, 5, at=0))
    assert lost(record) == []
    assert "do not say to which step" in record.findings[0].text


def test_attempts_come_by_number_whatever_the_clock_says() -> None:
    record = history([], steps(0, 1, 5, at=10_000) + steps(1, 4, 8, at=0))
    assert lost(record) == [(0, 4), (0, 5)]
    assert "clock" in kinds(record)


def test_a_clock_that_is_set_back_loses_no_step() -> None:
    rows = steps(0, 1, 3, at=1000) + steps(0, 4, 6, at=0)
    record = history([], rows)
    assert lost(record) == []
    assert record.steps.step.tolist() == [1, 2, 3, 4, 5, 6]
    assert "1 of them inside an attempt" in record.findings[0].text


def test_ranks_of_a_step_are_one_execution_whatever_their_clocks_say() -> None:
    rows = [
        {"attempt": 0, "step": s, "rank": r, "start_us": 100 * s + 5000 * r, "duration_us": 90 + r}
        for s in (0, 1, 2)
        for r in (0, 1)
    ]
    record = history([], rows)
    assert record.steps.start_us.tolist() == [0, 100, 200]
    assert record.steps.duration_us.tolist() == [91, 91, 91]
    assert not record.steps.lost.any()


def test_a_rank_that_ran_a_step_twice_makes_two_executions() -> None:
    rows = [
        {"step": 7, "rank": r, "start_us": start, "duration_us": 10}
        for r in (0, 1)
        for start in (0, 50)
    ]
    record = history([], rows)
    assert record.steps.start_us.tolist() == [0, 50]
    assert record.steps.lost.tolist() == [True, False]


def test_rows_of_one_step_that_overlap_are_one_execution() -> None:
    rows = [{"step": 1, "start_us": s, "duration_us": d} for s, d in ((0, 10), (2, 11), (9, 3))]
    executed, _ = read_steps(rows)
    assert (executed.start_us.tolist(), executed.duration_us.tolist()) == ([0], [11])


def test_steps_without_a_start_are_laid_end_to_end() -> None:
    rows: list[dict[str, Any]] = [
        {"attempt": a, "step": s, "start_us": None, "duration_us": 10}
        for a, s in ((0, 1), (0, 2), (1, 2), (2, 3))
    ]
    events, _ = read_events([event("first_step", 100), event("allocated", 500, 1)])
    executed, findings = read_steps(rows, events, origin_us=7)
    assert executed.start_us.tolist() == [100, 110, 500, 510]
    assert "4 steps have no start" in findings[0].text
    executed, _ = read_steps(rows[:2], origin_us=7)
    assert executed.start_us.tolist() == [7, 17]


def test_rows_that_cannot_be_are_named_and_left_out() -> None:
    rows = [
        *steps(0, 1, 2, at=0),
        *steps(0, 2, 2, at=10),
        {"attempt": 3, "step": 8, "start_us": 0, "duration_us": -5},
        {"attempt": 0, "step": None, "start_us": 0, "duration_us": 5},
    ]
    events = [
        event("failure", 9, end_us=4),
        event("eval", 5),
        event("eval", 5),
        {"attempt": 0, "start_us": None, "kind": "pause"},
    ]
    record = history(events, rows)
    assert record.steps.step.tolist() == [1, 2]
    said = "\n".join(finding.text for finding in record.findings)
    assert "2 step rows cannot be" in said
    assert "attempt 3 step 8 lasts -5.0 us" in said
    assert "1 step rows came twice" in said
    assert "it ends 5 us before it starts" in said
    assert "event pause of attempt 0: start or kind is missing" in said
    assert record.events == (Event(0, 5, "eval"),)


def test_columns_are_read_like_rows() -> None:
    rows = steps(0, 1, 4, at=3) + steps(1, 3, 6, at=90)
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    by_row, by_column = history([], rows), history([], columns)
    for name in ("attempt", "step", "start_us", "end_us", "lost"):
        left, right = getattr(by_row.steps, name), getattr(by_column.steps, name)
        assert left.tolist() == right.tolist()
    events = {"start_us": [4.0], "end_us": [float("nan")], "kind": ["eval"], "attempt": [0]}
    assert read_events(events)[0] == (Event(0, 4, "eval"),)


def test_an_asynchronous_save_holds_training_up_for_its_copy_only() -> None:
    assert Event(0, 100, "checkpoint_save", 900).blocking_end_us == 900
    assert Event(0, 100, "checkpoint_save", 900, None, "async").blocking_end_us == 100
    copied = Event(0, 100, "checkpoint_save", 9000, None, '{"async": true, "blocking_ms": 2}')
    assert copied.blocking_end_us == 2100
    assert Event(0, 100, "checkpoint_save", 900, None, "async blocking_s=1").blocking_end_us == 900
    assert Event(0, 100, "eval").blocking_end_us == 100
    assert Event(0, 100, "rollback", None, None, "[3]").restored_step is None
    assert Event(0, 100, "rollback", None, None, '{"step": true}').restored_step is None


def test_an_attempt_knows_its_moments() -> None:
    events = [
        event("process_start", 5),
        event("first_step", 12),
        event("failure", 55),
        event("failure", 58),
        event("process_start", 70, 1),
        event("process_end", 90, 1),
    ]
    first, second = history(events, steps(0, 1, 4, at=10)).attempts
    assert (first.begin_us, first.end_us, first.first_step_us) == (5, 58, 10)
    assert first.interrupted_us == 55
    assert first.is_over
    assert (second.first_step_us, second.interrupted_us, second.is_over) == (None, 90, True)
    running = history(events[:2], steps(0, 1, 4, at=10)).attempts[0]
    assert not running.is_over
    assert running.interrupted_us == 50


def test_events_that_differ_in_what_is_not_known_keep_one_order() -> None:
    told = [event("failure", 12, 0, end_us=end, detail=d) for end in (None, 12) for d in (None, "")]
    assert history(told, []).events == history(told[::-1], []).events


@settings(UNTIMED, max_examples=100)
@given(data=st.data())
def test_the_order_of_rows_changes_nothing(data: st.DataObject) -> None:
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "attempt": st.integers(0, 2),
                    "step": st.integers(0, 5),
                    "rank": st.integers(0, 1),
                    "start_us": st.none() | st.integers(0, 60),
                    "duration_us": st.integers(-1, 12),
                }
            ),
            max_size=12,
        )
    )
    events = data.draw(
        st.lists(
            st.builds(
                event,
                st.sampled_from(["rollback", "failure", "eval", "checkpoint_restore"]),
                st.integers(0, 60),
                st.integers(0, 2),
                end_us=st.none() | st.integers(0, 60),
                detail=st.sampled_from([None, "step 2", "step 4"]),
            ),
            max_size=5,
        )
    )
    plain = history(events, rows)
    mixed = history(data.draw(st.permutations(events)), data.draw(st.permutations(rows)))
    assert plain.events == mixed.events
    assert plain.findings == mixed.findings
    for name in ("attempt", "step", "start_us", "end_us", "lost"):
        assert getattr(plain.steps, name).tolist() == getattr(mixed.steps, name).tolist()
    kept = plain.steps.step[~plain.steps.lost]
    assert (np.diff(kept) > 0).all()
