"""Every moment of a job has one state, and the states are those that its record tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from steptax.app.compute.bill.attempt_layer import Cover, State
from steptax.app.compute.bill.attempts import history
from steptax.app.compute.bill.paid_time import DeviceSpan, idle_time, resolve_devices
from steptax.app.compute.bill.timeline import Allocation, Painted, held, paint
from steptax.app.errors import IntegrityError


def event(kind: str, start: int, attempt: int = 0, **more: Any) -> dict[str, Any]:
    return {"attempt": attempt, "start_us": start, "kind": kind, **more}


def step(number: int, start: int, length: int = 10, attempt: int = 0) -> dict[str, Any]:
    return {"attempt": attempt, "step": number, "start_us": start, "duration_us": length}


def run(
    events: list[dict[str, Any]],
    steps: list[dict[str, Any]],
    *allocations: Allocation,
    split: tuple[int, ...] = (),
    room_us: int = 0,
) -> Painted:
    record = history(events, steps)
    covered = np.isin(record.steps.step, split) & ~record.steps.lost
    room = np.where(record.steps.lost, 0, record.steps.duration_us)
    room = np.where(covered, room_us, room)
    return paint(record, allocations or (Allocation(0, 200, 2),), Cover(covered, room))


def states(painted: Painted) -> list[tuple[int, int, str]]:
    line = painted.timeline
    return [
        (int(start), int(end), State(int(state)).name)
        for start, end, state in zip(line.start_us, line.end_us, line.state, strict=True)
    ]


def test_a_life_with_a_failure() -> None:
    events = [
        event("process_start", 5),
        event("first_step", 10),
        event("checkpoint_save", 33, end_us=36),
        event("failure", 67),
        event("process_start", 80, 1),
        event("checkpoint_restore", 85, 1, end_us=88, detail="step 1"),
        event("process_end", 130, 1),
    ]
    steps = [step(0, 10), step(1, 22), step(2, 40), step(3, 50)]
    steps += [step(2, 90, 10, 1), step(3, 100, 10, 1), step(6, 120, 10, 1)]
    painted = run(events, steps)
    assert states(painted) == [
        (0, 5, "PENDING"),
        (5, 10, "STARTUP"),
        (10, 20, "WHOLE"),
        (20, 22, "UNEXPLAINED"),
        (22, 32, "WHOLE"),
        (32, 33, "UNEXPLAINED"),
        (33, 36, "CHECKPOINT"),
        (36, 40, "UNEXPLAINED"),
        (40, 67, "LOST"),
        (67, 90, "RECOVERY"),
        (90, 110, "WHOLE"),
        (110, 120, "UNRECORDED"),
        (120, 130, "WHOLE"),
        (130, 200, "PENDING"),
    ]
    assert painted.visible_us.tolist() == [10, 10, 0, 0, 10, 10, 10]
    assert painted.visible_gpu_us.tolist() == [20, 20, 0, 0, 20, 20, 20]
    assert painted.gap_steps.tolist() == [2]
    assert painted.gap_us.tolist() == painted.gap_visible_us.tolist() == [10]
    assert painted.findings == ()
    assert painted.timeline.gpu_us() == 400
    assert painted.timeline.gpu_us(State.LOST) == 54


def test_a_hang_is_a_broken_step_and_then_detection() -> None:
    painted = run([event("process_start", 0), event("failure", 90)], [step(0, 0), step(1, 10, 12)])
    assert states(painted) == [
        (0, 22, "WHOLE"),
        (22, 34, "LOST"),
        (34, 90, "RECOVERY"),
        (90, 200, "PENDING"),
    ]


def test_a_failure_that_several_ranks_report_breaks_one_step() -> None:
    events = [event("failure", 13, ranks="3"), event("failure", 19, ranks="0,1")]
    painted = run([*events, event("process_start", 0)], [step(0, 0), step(1, 40)])
    assert states(painted)[:3] == [(0, 10, "WHOLE"), (10, 13, "LOST"), (13, 40, "RECOVERY")]


def test_a_rollback_inside_an_attempt_costs_the_time_to_the_next_step() -> None:
    events = [event("process_start", 0), event("rollback", 32, end_us=36, detail="step 0")]
    painted = run(events, [step(0, 0), step(1, 10), step(2, 20), step(1, 50), step(2, 60)])
    assert states(painted)[:4] == [
        (0, 10, "WHOLE"),
        (10, 30, "LOST"),
        (30, 50, "RECOVERY"),
        (50, 70, "WHOLE"),
    ]


def test_without_a_process_start_waiting_and_startup_are_one() -> None:
    painted = run([], [step(0, 30)])
    assert states(painted) == [
        (0, 30, "BEFORE_FIRST"),
        (30, 40, "WHOLE"),
        (40, 200, "UNEXPLAINED"),
    ]


def test_without_a_record_nothing_is_explained() -> None:
    assert states(run([], [])) == [(0, 200, "UNEXPLAINED")]
    assert states(run([event("allocated", 3)], [])) == [(0, 200, "UNEXPLAINED")]


def test_an_attempt_that_fails_before_its_first_step() -> None:
    events = [event("process_start", 5), event("failure", 20), event("process_start", 30, 1)]
    painted = run(
        [*events, event("failure", 40, 1), event("process_start", 50, 2)], [step(0, 60, 10, 2)]
    )
    assert states(painted) == [
        (0, 5, "PENDING"),
        (5, 20, "STARTUP"),
        (20, 60, "RECOVERY"),
        (60, 70, "WHOLE"),
        (70, 200, "UNEXPLAINED"),
    ]


def test_the_later_of_two_attempts_counts_where_they_overlap() -> None:
    steps = [step(0, 0, 50), step(1, 50, 50), step(2, 70, 10, 1)]
    painted = run([event("process_start", 0), event("process_start", 60, 1)], steps)
    assert states(painted)[:3] == [
        (0, 60, "WHOLE"),
        (60, 70, "RECOVERY"),
        (70, 100, "WHOLE"),
    ]
    assert painted.visible_us.tolist() == [50, 30, 10]
    assert "attempts 0 and 1 overlap by 20 us" in painted.findings[0].text


def test_steps_that_run_into_each_other_count_once() -> None:
    painted = run([event("process_start", 0)], [step(0, 0, 30), step(1, 20, 30)])
    assert states(painted)[0] == (0, 50, "WHOLE")
    assert painted.visible_us.tolist() == [20, 30]
    assert "1 steps of attempt 0 run into the next one, by 10 us" in painted.findings[0].text


def test_an_event_beside_steps_holds_nothing_up_while_they_run() -> None:
    events = [event("process_start", 0), event("eval", 15, end_us=35)]
    painted = run(events, [step(0, 0, 20), step(1, 30, 20)])
    assert states(painted)[:3] == [(0, 20, "WHOLE"), (20, 30, "BLOCKING"), (30, 50, "WHOLE")]
    assert painted.taken_us.tolist() == [0, 0]


def test_an_event_inside_a_step_takes_what_its_parts_leave_open() -> None:
    events = [event("process_start", 0), event("checkpoint_save", 5, end_us=15)]
    whole = run(events, [step(0, 0, 40)])
    assert states(whole)[:3] == [(0, 5, "WHOLE"), (5, 15, "CHECKPOINT"), (15, 40, "WHOLE")]
    assert (whole.taken_us.tolist(), whole.visible_us.tolist()) == ([10], [30])
    open_ = run(events, [step(0, 0, 40)], split=(0,), room_us=4)
    assert states(open_)[:3] == [(0, 5, "SPLIT"), (5, 9, "CHECKPOINT"), (9, 40, "SPLIT")]
    full = run(events, [step(0, 0, 40)], split=(0,))
    assert states(full)[0] == (0, 40, "SPLIT")
    lost = run([*events, event("rollback", 60, detail="step 0")], [step(1, 0, 40)])
    assert states(lost)[0] == (0, 40, "LOST")


def test_room_of_a_step_is_given_out_once() -> None:
    events = [event("eval", 5, end_us=15), event("pause", 20, end_us=30)]
    painted = run([*events, event("process_start", 0)], [step(0, 0, 40)], split=(0,), room_us=12)
    assert painted.taken_us.tolist() == [12]
    assert painted.timeline.gpu_us(State.BLOCKING) == 24


def test_missing_steps_between_lost_ones_are_lost() -> None:
    steps = [step(0, 0), step(10, 50), step(1, 100, 10, 1)]
    painted = run([event("process_start", 0)], steps)
    assert states(painted)[:3] == [(0, 10, "WHOLE"), (10, 60, "LOST"), (60, 100, "RECOVERY")]
    assert painted.gap_steps.tolist() == []


def test_only_time_that_was_held_counts() -> None:
    requeued = (Allocation(5, 12, 4), Allocation(40, 60, 2))
    events = [event("process_start", 0), event("process_start", 30, 1)]
    painted = run(events, [step(0, 0, 20), step(1, 50, 20, 1)], *requeued)
    assert states(painted) == [(5, 12, "WHOLE"), (40, 50, "RECOVERY"), (50, 60, "WHOLE")]
    assert painted.timeline.gpus.tolist() == [4, 2, 2]
    assert painted.visible_us.tolist() == [7, 10]
    assert painted.visible_gpu_us.tolist() == [28, 20]
    assert painted.timeline.span_us == (5, 60)
    assert "23 us of steps lie outside" in painted.findings[0].text
    assert run([], [], Allocation(3, 3, 1)).timeline.span_us == (0, 0)


def test_allocations_that_overlap_count_once() -> None:
    found = held([Allocation(0, 50, 8), Allocation(40, 60, 4)])
    assert list(zip(found.start_us, found.end_us, found.label, strict=True)) == [
        (0, 40, 8),
        (40, 60, 4),
    ]


def test_a_device_belongs_to_the_job_that_got_it_last() -> None:
    spans = [
        DeviceSpan("old", "gpu0", 0, 100),
        DeviceSpan("new", "gpu0", 60, 90),
        DeviceSpan("old", "gpu1", 0, 50),
        DeviceSpan("new", "gpu2", 60, 90),
    ]
    shares, findings = resolve_devices(spans)
    assert shares["new"] == [Allocation(60, 90, 2)]
    assert shares["old"] == [Allocation(0, 50, 2), Allocation(50, 60, 1), Allocation(90, 100, 1)]
    assert [f.text for f in findings] == [
        "30 GPU-us of job old count for the job that held them later"
    ]
    assert resolve_devices(spans[::-1])[0] == shares


def test_what_was_paid_and_not_held() -> None:
    idle = idle_time([Allocation(0, 100, 8)], [held([Allocation(10, 60, 6)])], "x")
    assert idle.gpu_us(State.UNALLOCATED) == 800 - 300
    late = idle_time([Allocation(0, 100, 8)], [held([Allocation(0, 130, 8)])], "x")
    assert late.gpu_us() == -240
    with pytest.raises(
        IntegrityError, match=r"x: .* more are held than were paid for, from 100 us"
    ):
        idle_time([Allocation(0, 100, 8)], [held([Allocation(0, 1_000_200, 8)])], "x")
