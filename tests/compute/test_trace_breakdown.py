"""A device's time against counting nanoseconds one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.trace.breakdown import (
    DeviceWork,
    Work,
    stream_use,
    time_breakdown,
    without_last_step,
)
from steptax.app.compute.trace.idle import idle_causes
from steptax.app.compute.trace.kernels import kernel_table

NAMES = ("gemm", "nccl", "Memcpy")
OPERATION = st.tuples(
    st.sampled_from(list(Work)),
    st.integers(-30, 30),  # start
    st.integers(0, 15),  # length
    st.integers(0, 2),  # stream
    st.integers(-40, 30),  # launch
    st.booleans(),  # whether that is known
)
OPERATIONS = st.lists(OPERATION, min_size=1, max_size=14)
Rows = list[tuple[Work, int, int, int, int, bool]]


def work(rows: Rows, **more: Any) -> DeviceWork:
    kind, start, length, stream, launch, known = (np.array(c) for c in zip(*rows, strict=True))
    return DeviceWork(
        kind=kind,
        start_ns=start,
        end_ns=start + length,
        name=kind,
        names=NAMES,
        stream=stream,
        streams=("7", "20", "24"),
        step=np.zeros(len(rows), np.int64),
        launch_ns=launch,
        launched=known,
        **more,
    )


def moments(rows: Rows, *kinds: Work) -> set[int]:
    return {
        t for kind, start, length, *_ in rows if kind in kinds for t in range(start, start + length)
    }


@given(OPERATIONS)
def test_every_nanosecond_of_the_window_is_counted_once(rows: Rows) -> None:
    found = time_breakdown(work(rows))
    assert found is not None
    compute = moments(rows, Work.COMPUTE)
    comm = moments(rows, Work.COMMUNICATION)
    copies = moments(rows, Work.COPY)
    assert found.window_ns == max(r[1] + r[2] for r in rows) - min(r[1] for r in rows)
    assert found.compute_ns == len(compute)
    assert found.communication_ns == len(comm)
    assert found.copy_ns == len(copies)
    assert found.exposed_communication_ns == len(comm - compute)
    assert found.exposed_copy_ns == len(copies - compute - comm)
    assert found.idle_ns == found.window_ns - len(compute | comm | copies)
    assert found.non_compute_ns == len((comm | copies) - compute)
    assert found.overlap_ns == len(comm & compute)
    assert found.overlap_ratio == (len(comm & compute) / len(comm) if comm else None)
    parts = found.compute_ns + found.exposed_communication_ns + found.exposed_copy_ns
    assert parts + found.idle_ns == found.window_ns


@given(OPERATIONS)
def test_streams_are_unions_of_their_own(rows: Rows) -> None:
    found = {use.stream: use for use in stream_use(work(rows))}
    for number, stream in enumerate(("7", "20", "24")):
        mine = [r for r in rows if r[3] == number]
        assert (stream in found) == bool(mine)
        if mine:
            use = found[stream]
            assert use.operations == len(mine)
            assert use.busy_ns == len(moments(mine, *Work))
            assert use.compute_ns == len(moments(mine, Work.COMPUTE))
            assert use.communication_ns == len(moments(mine, Work.COMMUNICATION))
            assert use.copy_ns == len(moments(mine, Work.COPY))


def causes(rows: Rows, kernel_wait: int) -> tuple[int, int, int]:
    """One after the other, by hand."""
    host = kernel = other = 0
    reach: int | None = None
    for _, start, length, _, launch, known in sorted(rows, key=lambda r: (r[1], r[1] + r[2])):
        if reach is not None and start > reach:
            if known and launch > reach:
                host += start - reach
            elif start - reach < kernel_wait:
                kernel += start - reach
            else:
                other += start - reach
        reach = start + length if reach is None else max(reach, start + length)
    return host, kernel, other


@given(OPERATIONS, st.integers(0, 20))
def test_every_gap_has_one_cause(rows: Rows, kernel_wait: int) -> None:
    found = idle_causes(work(rows), kernel_wait_ns=kernel_wait)
    assert found is not None
    device, streams = found
    assert (device.host_wait_ns, device.kernel_wait_ns, device.other_ns) == causes(
        rows, kernel_wait
    )
    parts = time_breakdown(work(rows))
    assert parts is not None
    # Operations without length make no gap end where others leave none.
    assert device.total_ns == parts.idle_ns
    assert device.unlinked == sum(not r[5] for r in rows)
    for one in streams:
        mine = [r for r in rows if ("7", "20", "24")[r[3]] == one.stream]
        assert (one.host_wait_ns, one.kernel_wait_ns, one.other_ns) == causes(mine, kernel_wait)


@given(OPERATIONS)
def test_the_kernel_table_is_sums_over_launches(rows: Rows) -> None:
    found = kernel_table(work(rows))
    assert [k.total_ns for k in found] == sorted((k.total_ns for k in found), reverse=True)
    assert {k.name for k in found} == {NAMES[r[0]] for r in rows}
    for use in found:
        lengths = [r[2] for r in rows if r[0] == use.kind]
        assert use.count == len(lengths)
        assert use.total_ns == sum(lengths)
        assert (use.min_ns, use.max_ns) == (min(lengths), max(lengths))
        assert use.mean_ns == pytest.approx(np.mean(lengths))
        deviation = np.std(lengths, ddof=1) if len(lengths) > 1 else 0.0
        assert use.deviation_ns == pytest.approx(deviation)
        assert use.share_ratio == (1.0 if sum(lengths) else 0.0)


def test_times_since_1970_keep_their_nanoseconds() -> None:
    base = 1_790_000_000_000_000_000
    rows: Rows = [(Work.COMPUTE, 0, 3, 0, -1, True), (Work.COMPUTE, 4, 1, 0, -1, True)]
    made = work([(k, s + base, n, q, launch + base, ok) for k, s, n, q, launch, ok in rows])
    found = time_breakdown(made)
    assert found is not None
    assert (found.window_ns, found.compute_ns, found.idle_ns) == (5, 4, 1)


def test_without_operations_nothing_is_claimed() -> None:
    none = work([(Work.COMPUTE, 0, 1, 0, 0, True)]).only(np.zeros(1, bool))
    assert time_breakdown(none) is None
    assert idle_causes(none) is None
    assert kernel_table(none) == ()
    assert stream_use(none) == ()


@given(st.integers(-5000, 5000), st.integers(0, 5000))
def test_whole_microseconds_lie_inside_of_the_operation(start: int, length: int) -> None:
    cut = work([(Work.COMPUTE, start, length, 0, 0, True)]).in_whole_us()
    low, high = int(cut.start_ns[0]), int(cut.end_ns[0])
    assert low % 1000 == 0
    assert high % 1000 == 0
    assert start <= low <= high
    inside = [t for t in range(start, start + length + 1) if t % 1000 == 0]
    assert high - low == max(0, (len(inside) - 1) * 1000)


def test_the_last_step_goes_by_its_launch() -> None:
    rows: Rows = [
        (Work.COMPUTE, 10, 5, 0, 8, True),
        (Work.COMPUTE, 25, 5, 0, 19, True),  # Launched before the last step, runs in it.
        (Work.COMPUTE, 32, 5, 0, 21, True),
        (Work.COMPUTE, 11, 5, 0, 11, False),  # Nobody knows who launched it.
    ]
    assert without_last_step(work(rows), [0, 20]).start_ns.tolist() == [10, 25]
    assert len(without_last_step(work(rows), [0])) == 4
    assert len(without_last_step(work(rows), [])) == 4
