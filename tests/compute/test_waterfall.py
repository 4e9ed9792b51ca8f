"""Every paid GPU-second is in one bucket, to the cent, whatever the record says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.compute.bill.apportion import Unit
from steptax.app.compute.bill.buckets import BUCKETS, Group
from steptax.app.compute.bill.cost import exact_usd, to_cents
from steptax.app.compute.bill.goodput import Denominator
from steptax.app.compute.bill.ledger import step_ledger
from steptax.app.compute.bill.timeline import Allocation
from steptax.app.compute.bill.waterfall import job_ledger
from steptax.app.compute.bill.waterfall_groups import split_periods, total, within
from steptax.app.compute.bill.waterfall_rows import Waterfall
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.mfu.peaks import given_peak, peak
from steptax.app.compute.mfu.step_flops import StepFlops, step_flops
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix
from steptax.app.errors import IntegrityError, NotFoundError, UserError

UNTIMED = settings(suppress_health_check=[HealthCheck.too_slow])

#: Two hundred microseconds before a day and a month end, in UTC.
BASE = 1_738_368_000_000_000 - 200
PRICE = Decimal("123456789.01")
KINDS = [
    "allocated",
    "process_start",
    "first_step",
    "checkpoint_save",
    "checkpoint_restore",
    "failure",
    "rollback",
    "restart",
    "eval",
    "pause",
    "evict",
    "maintenance",
    "process_end",
    "profiling",
]


@dataclass
class Case:
    """A job as a view would hand it over."""

    job: dict[str, Any]
    events: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    windows: list[list[int]]
    """Steps whose per-rank records are loaded, per window."""
    flops: StepFlops | None
    paid: list[Allocation] | None
    denominator: Denominator
    relative_pipeline: int

    def matrices(self) -> list[StepMatrix]:
        newest: dict[int, int] = {}
        for row in self.rows:
            newest[row["step"]] = max(newest.get(row["step"], 0), row["attempt"])
        found = []
        for window in self.windows:
            rows = {
                (row["step"], row["rank"]): row
                for row in self.rows
                if row["step"] in window and row["attempt"] == newest[row["step"]]
            }
            if rows:
                names = [n for n in self.rows[0] if n not in ("attempt", "start_us")]
                found.append(
                    build_matrix(
                        {
                            name: np.array([row[name] for row in rows.values()], dtype=float)
                            for name in names
                        },
                        world_size=self.job["world_size"],
                        expected_ranks=2,
                        topology={r: (r % self.relative_pipeline, r) for r in (0, 1)},
                    )
                )
        return found

    def bill(self, price: Decimal | None = PRICE) -> Waterfall:
        return job_ledger(
            self.job,
            self.events,
            self.rows,
            matrices=self.matrices(),
            flops=self.flops,
            paid=self.paid,
            denominator=self.denominator,
            usd_per_gpu_hour=price,
            until_us=BASE + 500,
        )


@st.composite
def step_rows(draw: st.DrawFn, attempt: int) -> list[dict[str, Any]]:
    """Per-rank rows of an attempt whose steps may overlap, jump, or have holes."""
    rows = []
    at = BASE + draw(st.integers(-20, 350))
    number = draw(st.integers(0, 4))
    for _ in range(draw(st.integers(0, 5))):
        length = draw(st.integers(0, 60))
        for rank in (0, 1):
            if rank and draw(st.integers(0, 5)) == 0:
                continue
            duration = max(length - draw(st.integers(0, 3)) * rank, 0)
            compute, input_, comm = sorted(draw(st.integers(0, duration)) for _ in range(3))
            rows.append(
                {
                    "attempt": attempt,
                    "step": number,
                    "rank": rank,
                    "start_us": at + draw(st.integers(-2, 2)),
                    # Clocks differ: the parts may be longer than the whole.
                    "duration_us": max(duration - draw(st.sampled_from([0, 0, 0, 1, 7])), 0),
                    "compute_us": compute,
                    "input_us": input_ - compute,
                    "comm_us": comm - input_,
                }
            )
        at += length + draw(st.integers(-5, 15))
        number += draw(st.sampled_from([1, 1, 1, 4]))
    return rows


@st.composite
def cases(draw: st.DrawFn) -> Case:
    attempts = draw(st.integers(0, 3))
    rows = [row for a in range(attempts) for row in draw(step_rows(a))]
    without_starts = draw(st.booleans())
    if without_starts:
        for row in rows:
            row["start_us"] = None
    events = draw(
        st.lists(
            st.builds(
                lambda kind, attempt, start, length, detail: {
                    "kind": kind,
                    "attempt": attempt,
                    "start_us": BASE + start,
                    "end_us": None if length is None else BASE + start + length,
                    "ranks": None,
                    "detail": detail,
                },
                st.sampled_from(KINDS),
                st.integers(0, 2),
                st.integers(-10, 420),
                st.none() | st.integers(-3, 60),
                st.sampled_from([None, "step 1", '{"step": 3}', "async", "async blocking_us=4"]),
            ),
            max_size=8,
        )
    )
    for kind in ("process_start", "checkpoint_save", "eval"):
        if draw(st.booleans()):
            start = BASE + draw(st.integers(0, 60 if kind == "process_start" else 300))
            end = None if kind == "process_start" else start + draw(st.integers(1, 40))
            events.append({"kind": kind, "attempt": 0, "start_us": start, "end_us": end})
    kept = draw(st.sets(st.sampled_from(["compute_us", "input_us", "comm_us"]), min_size=1))
    for row in rows:
        for name in ("compute_us", "input_us", "comm_us"):
            if name not in kept:
                del row[name]
    steps = sorted({row["step"] for row in rows})
    cut = draw(st.integers(0, len(steps)))
    world = draw(st.sampled_from([2, 4, 6]))
    start, end = draw(st.integers(0, 50)), draw(st.integers(50, 450))
    return Case(
        {
            "job_id": "j",
            "world_size": world,
            "start_us": BASE + start,
            "end_us": draw(st.sampled_from([BASE + end, BASE + end, None])),
            "pp_size": 2,
            "micro_batches": draw(st.sampled_from([None, 4])),
        },
        events,
        rows,
        draw(st.sampled_from([[], [steps[:cut]], [steps[:cut], steps[cut:]]])),
        draw(
            st.sampled_from(
                [
                    None,
                    StepFlops(Fraction(world, 3)),
                    StepFlops(Fraction(world, 3), Fraction(4, 3)),
                    StepFlops(Fraction(world * 40), Fraction(4, 3)),
                ]
            )
        ),
        draw(st.sampled_from([None, [Allocation(BASE - 50, BASE + 900, world + 2)]])),
        draw(st.sampled_from(list(Denominator))),
        draw(st.sampled_from([1, 2])),
    )


def held_us(case: Case) -> int:
    end = case.job["end_us"]
    if end is None:
        rows = [r for r in case.bill(None).findings if "no end on record" in r.text]
        assert len(rows) == 1
        line = case.bill(None).timeline
        assert line is not None
        held = line.within(case.job["start_us"], 2**60)
        return int(held.end_us[held.state != 0].max()) - int(case.job["start_us"])
    return int(end - case.job["start_us"])


@settings(UNTIMED, max_examples=150)
@given(case=cases())
def test_the_buckets_are_the_bill(case: Case) -> None:
    bill = case.bill()
    known = [row.gpu_us for row in bill.rows if row.gpu_us is not None]
    assert sum(known, Fraction(0)) == bill.total_gpu_us
    if case.denominator is Denominator.PAID and case.paid:
        assert bill.total_gpu_us == 950 * case.paid[0].gpus
    elif case.job["end_us"] is not None:
        assert bill.total_gpu_us == held_us(case) * case.job["world_size"]
    if bill.total_gpu_us:
        assert bill.total_usd == to_cents(exact_usd(bill.total_gpu_us / 10**6, PRICE))
        assert sum(row.share_ratio or 0.0 for row in bill.rows) == pytest.approx(1, abs=1e-9)
    order = list(BUCKETS)
    assert [r.bucket for r in bill.rows] == sorted((r.bucket for r in bill.rows), key=order.index)
    for row in bill.rows:
        assert row.gpu_us is not None or row.note
        assert (row.gpu_us is None) == (row.gpu_seconds is None)
        assert row.gpu_us is None or row.gpu_us >= 0
    for number in ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9a", "9b", "10", "11", "12", "13"):
        assert number in {row.number for row in bill.rows}


@settings(UNTIMED, max_examples=150)
@given(case=cases())
def test_the_factors_multiply_to_the_useful_share_exactly(case: Case) -> None:
    goodput = case.bill().goodput
    a, sg, rg, pg = goodput.total_gpu_us, goodput.scheduling, goodput.runtime, goodput.program
    assert sum(bar.gpu_us for bar in goodput.bars) == a
    if goodput.useful_gpu_us is None or not goodput.in_steps_gpu_us:
        assert pg is None
        return
    assert sg is not None
    assert rg is not None
    assert pg is not None
    assert goodput.share == sg * rg * pg
    bill = case.bill()
    groups = {
        group: sum(
            (r.gpu_us for r in bill.rows if r.gpu_us and BUCKETS[r.bucket].group is group),
            Fraction(0),
        )
        for group in Group
    }
    assert [bar.gpu_us for bar in goodput.bars] == [
        groups[Group.SCHEDULING],
        groups[Group.RUNTIME],
        groups[Group.PROGRAM],
        groups[Group.USEFUL],
    ]
    assert [a * (1 - sg), a * sg * (1 - rg), a * sg * rg * (1 - pg)] == [
        bar.gpu_us for bar in goodput.bars[:3]
    ]


@settings(UNTIMED, max_examples=80)
@given(case=cases(), data=st.data())
def test_the_order_of_rows_changes_nothing(case: Case, data: st.DataObject) -> None:
    mixed = replace(
        case,
        events=data.draw(st.permutations(case.events)),
        rows=data.draw(st.permutations(case.rows)),
        windows=data.draw(st.permutations(case.windows)),
    )
    plain, other = case.bill(), mixed.bill()
    assert plain.rows == other.rows
    assert plain.total_usd == other.total_usd
    assert sorted(f.text for f in plain.findings) == sorted(f.text for f in other.findings)


@settings(UNTIMED, max_examples=150)
@given(case=cases(), data=st.data())
def test_a_rolled_back_attempt_never_adds_useful_time(case: Case, data: st.DataObject) -> None:
    case.flops = StepFlops(Fraction(case.job["world_size"], 10**6), Fraction(1))
    case.job["end_us"] = BASE + 450
    case.windows = []
    number = 1 + max([e["attempt"] for e in case.events] + [r["attempt"] for r in case.rows] + [0])
    added = data.draw(step_rows(number))
    first = min((row["step"] for row in added), default=0)
    back = {
        "kind": "rollback",
        "attempt": number + 1,
        "start_us": BASE + data.draw(st.integers(0, 440)),
        "detail": f'{{"step": {max(first - 1, 0)}}}',
    }
    before = case.bill(None)
    after = replace(
        case,
        rows=[*case.rows, *(row for row in added if row["step"] > max(first - 1, 0))],
        events=[*case.events, back],
    ).bill(None)
    assert after.gpu_us("useful") <= before.gpu_us("useful")
    assert after.total_gpu_us == before.total_gpu_us


@settings(UNTIMED, max_examples=100)
@given(case=cases(), unit=st.sampled_from(list(Unit)))
def test_periods_add_up_to_the_bill(case: Case, unit: Unit) -> None:
    bill = case.bill()
    parts = split_periods(bill, unit)
    if not parts:
        assert not bill.total_gpu_us
        return
    assert sum(part.total_gpu_us for part in parts) == bill.total_gpu_us
    for bucket in BUCKETS:
        assert sum(part.gpu_us(bucket) for part in parts) == bill.gpu_us(bucket)
    assert sum(part.total_usd or Decimal(0) for part in parts) == bill.total_usd
    again = total(parts)
    assert again.total_gpu_us == bill.total_gpu_us
    assert again.total_usd == bill.total_usd
    assert {r.bucket: r.gpu_us for r in again.rows} == {r.bucket: r.gpu_us for r in bill.rows}


def event(kind: str, start: int, attempt: int = 0, **more: Any) -> dict[str, Any]:
    return {"attempt": attempt, "start_us": start, "kind": kind, **more}


JOB: dict[str, Any] = {
    "job_id": "j",
    "world_size": 2,
    "start_us": 0,
    "end_us": 400_000,
    "team": "t",
}


def matrix(world: int = 2, stage: int = 1, first: int = 0, **columns: Any) -> StepMatrix:
    values = {name: np.array(given, dtype=float) for name, given in columns.items()}
    number, rank = np.meshgrid(*map(np.arange, values["duration_us"].shape), indexing="ij")
    return build_matrix(
        {name: v.ravel() for name, v in ({"step": number + first, "rank": rank} | values).items()},
        world_size=world,
        topology={r: (r % stage, r) for r in range(rank.shape[1])},
    )


def amounts(bill: Waterfall) -> dict[str, Fraction]:
    return {row.bucket: row.gpu_us for row in bill.rows if row.gpu_us}


EVENTS = [
    event("process_start", 20_000),
    event("checkpoint_save", 240_000, end_us=260_000),
    event("process_end", 390_000),
]
TWO = matrix(
    duration_us=[[100_000, 100_000]] * 3,
    comm_us=[[50_000, 20_000]] * 3,
    compute_us=[[45_000, 70_000]] * 3,
    input_us=[[3000, 4000]] * 3,
    gc_us=[[0, 5000]] * 3,
)
STEPS = [
    {"step": k, "start_us": s, "duration_us": 100_000}
    for k, s in enumerate((40_000, 140_000, 270_000))
]


def test_each_part_is_in_its_bucket() -> None:
    flops = StepFlops(Fraction(50_000), Fraction(6, 5), "6N")
    bill = job_ledger(
        JOB, EVENTS, STEPS, matrices=[TWO], flops=flops, usd_per_gpu_hour=Decimal("3600")
    )
    assert amounts(bill) == {
        "pending": 2 * 20_000 + 2 * 10_000,
        "startup": 2 * 20_000,
        "checkpoint": 2 * 20_000,
        "input": 3 * 7000,
        "exposed_comm": 3 * 40_000,
        "straggler_wait": 3 * 30_000,
        "host_gaps": 3 * (2000 + 1000 + 5000),
        "kernel_inefficiency": 3 * (115_000 - 60_000),
        "recompute": 3 * 10_000,
        "useful": 3 * 50_000,
        "unexplained": 2 * (10_000 + 20_000),
    }
    assert bill.total_usd == Decimal("0.80")
    assert bill.row("useful").usd == Decimal("0.15")
    assert bill.row("useful").note == "6N"
    assert bill.row("recompute").number == "12"
    assert not bill.row("useful").is_loss
    assert bill.row("kernel_inefficiency").is_loss
    assert bill.level is Level.PHASES
    measures = bill.measures()
    assert measures["effective_mfu_ratio"].value == 150 / 800
    assert measures["scheduling_ratio"].value == 740 / 800
    assert measures["ettr_ratio"].value == pytest.approx(600 / 740)
    assert measures["goodput_ratio"].value == 600 / 800
    assert measures["mfu_ratio"].value == 0.25
    assert measures["spend_usd"].value == 0.8
    assert measures["gpu_hours"].value == pytest.approx(0.8 / 3600)
    assert measures["unexplained_ratio"].value == 60 / 800
    assert measures["at_risk_gpu_hours"].value == pytest.approx(0.2 / 3600)
    assert bill.labels.team == "t"
    with pytest.raises(KeyError):
        bill.row("no such bucket")


def test_the_split_of_the_steps_is_that_of_their_own_ledger() -> None:
    bill = job_ledger(JOB, EVENTS, STEPS, matrices=[TWO])
    own = step_ledger(TWO, None)
    for bucket in ("input", "exposed_comm", "straggler_wait", "compute"):
        row = own.row(bucket)
        assert row is not None
        assert bill.gpu_us(bucket) == row.gpu_us


def test_without_flops_computing_is_whole_and_says_why() -> None:
    bill = job_ledger(JOB, EVENTS, STEPS, matrices=[TWO])
    row = bill.row("compute")
    assert row.number == "11-13"
    assert row.gpu_us == 3 * 115_000
    assert row.title == "compute, not split: no model FLOPs known"
    assert not row.is_loss
    assert bill.row("useful").gpu_us is None
    assert bill.row("useful").note == "no model FLOPs known"
    assert bill.measures()["effective_mfu_ratio"].reason == "no model FLOPs known"
    assert bill.measures()["spend_usd"].reason == "no price is known"
    assert bill.total_usd is None
    assert bill.usd_exact is None
    assert bill.goodput.bars[-1].title == "not known further"


def test_without_knowing_what_is_recomputed_it_stays_with_the_kernels() -> None:
    bill = job_ledger(JOB, EVENTS, STEPS, matrices=[TWO], flops=StepFlops(Fraction(50_000)))
    assert bill.gpu_us("kernel_and_recompute") == 3 * 65_000
    assert bill.row("recompute").gpu_us is None
    assert bill.row("kernel_inefficiency").note == "not told from recomputation"


def test_flops_that_do_not_fit_are_refused_by_name() -> None:
    bill = job_ledger(JOB, EVENTS, STEPS, matrices=[TWO], flops=StepFlops(Fraction(120_000)))
    assert "compute" in amounts(bill)
    assert bill.row("useful").gpu_us is None
    assert "the FLOPs take 360000 GPU-us at peak, but there are 345000" in bill.row("useful").note
    assert [f.kind for f in bill.findings] == ["rejected"]
    more = job_ledger(JOB, EVENTS, STEPS, flops=StepFlops(Fraction(210_000)))
    assert "but the steps last 600000 GPU-us" in more.row("useful").note


def test_useful_time_comes_out_of_what_is_known_of_each_step() -> None:
    rows = [*STEPS[:2], STEPS[2] | {"step": 5}]
    first = matrix(
        duration_us=[[100_000, 100_000]], comm_us=[[50_000, 20_000]], compute_us=[[45_000, 70_000]]
    )
    bill = job_ledger(JOB, EVENTS, rows, matrices=[first], flops=StepFlops(Fraction(1000)))
    held = amounts(bill)
    # One step is split, two are whole; the three between 1 and 5 ran in the 30 ms gap.
    assert held["useful"] == 6 * 1000
    assert held["kernel_and_recompute"] == 115_000 - 1000
    assert held["step_unsplit"] == 2 * 200_000 - 2000
    assert held["steps_unrecorded"] == 2 * 10_000 - 3000
    assert "length of these steps alone" in bill.row("step_unsplit").note


def test_a_rank_that_did_not_report_has_its_share_of_the_useful_work() -> None:
    part = matrix(
        duration_us=[[100_000, 100_000]] * 3,
        comm_us=[[10_000, 20_000]] * 3,
        compute_us=[[90_000, 80_000]] * 3,
    )
    part.duration_us[1, 1] = np.nan
    bill = job_ledger(JOB, EVENTS, STEPS, matrices=[part], flops=StepFlops(Fraction(6000)))
    held = amounts(bill)
    assert held["useful"] == 18_000
    assert held["ranks_unrecorded"] == 100_000 - 18_000 * Fraction(100, 600)
    assert "1 reports are missing" in bill.row("ranks_unrecorded").note


def test_ranks_that_end_before_the_longest_leave_a_rest() -> None:
    part = matrix(
        duration_us=[[100_000, 97_000]] * 3,
        comm_us=[[10_000, 17_000]] * 3,
        compute_us=[[90_000, 80_000]] * 3,
    )
    held = amounts(job_ledger(JOB, EVENTS, STEPS, matrices=[part]))
    assert held["step_rest"] == 9000


def test_longest_reports_that_overlap_do_not_shrink_what_ranks_measured() -> None:
    """Rank 0 leaves the barrier first and rank 1 last, so that the longest reports overlap."""
    part = matrix(
        duration_us=[[100_000, 104_000], [100_000, 104_000], [104_000, 100_000]],
        comm_us=[[10_000, 10_000]] * 3,
        compute_us=[[90_000, 94_000], [90_000, 94_000], [94_000, 90_000]],
    )
    rows = [{"step": k, "start_us": 40_000 + 102_000 * k, "duration_us": 104_000} for k in range(3)]
    bill = job_ledger(JOB, EVENTS, rows, matrices=[part], flops=StepFlops(Fraction(1000)))
    held = amounts(bill)
    assert held["kernel_and_recompute"] == 552_000 - 3000
    assert held["useful"] == 3000
    assert held["step_rest"] == 2 * 2 * 102_000 + 2 * 104_000 - 612_000
    tight = [row | {"start_us": 40_000 + 101_000 * k} for k, row in enumerate(rows)]
    held = amounts(job_ledger(JOB, EVENTS, tight, matrices=[part]))
    assert held["compute"] == 552_000
    over = [row | {"start_us": 40_000 + 95_000 * k} for k, row in enumerate(rows)]
    held = amounts(job_ledger(JOB, EVENTS, over, matrices=[part]))
    assert held["compute"] == 552_000 * Fraction(4 * 95 + 2 * 104, 612)
    assert "step_rest" not in held


def test_parts_of_other_steps_are_refused() -> None:
    long = matrix(duration_us=[[140_000, 140_000]] * 3, comm_us=[[0, 0]] * 3)
    with pytest.raises(IntegrityError, match="the ranks of 3 steps report 840000 GPU-us"):
        job_ledger(JOB, EVENTS, STEPS, matrices=[long])


def test_reports_whose_parts_exceed_them_are_left_out_by_name() -> None:
    bad = matrix(
        duration_us=[[100_000, 100_000]] * 3,
        comm_us=[[50_000, 20_000]] * 3,
        compute_us=[[45_000, 70_000], [45_000, 90_000], [45_000, 70_000]],
    )
    bill = job_ledger(JOB, EVENTS, STEPS, matrices=[bad])
    assert bill.findings[0].kind == "rejected"
    assert "the first is step 1, rank 1" in bill.findings[0].text
    assert amounts(bill)["ranks_unrecorded"] == 100_000


def test_parts_that_exceed_their_steps_within_the_tolerance_are_cut_to_them() -> None:
    part = matrix(
        duration_us=[[100_000, 100_000]] * 3, comm_us=[[0, 0]] * 3, compute_us=[[100_900] * 2] * 3
    )
    bill = job_ledger(JOB, EVENTS, STEPS, matrices=[part])
    row = bill.row("host_gaps")
    assert (row.gpu_us, row.share_ratio) == (0, 0.0)
    assert "exceed them, by 0.9 % in all" in row.note
    assert bill.gpu_us("compute") == 6 * 100_000


def test_a_save_inside_a_step_is_taken_from_what_its_parts_leave() -> None:
    save = [*EVENTS, event("checkpoint_save", 45_000, end_us=46_500)]
    bill = job_ledger(JOB, save, STEPS, matrices=[TWO])
    held = amounts(bill)
    # The fuller rank leaves 1,000 of the step open, so that is all that the save can have held up.
    assert held["checkpoint"] == 2 * 20_000 + 2 * 1000
    assert held["host_gaps"] == 3 * 8000 - 2 * 1000
    assert held["compute"] == 3 * 115_000
    saved = matrix(
        duration_us=[[100_000, 100_000]] * 3,
        comm_us=[[10_000, 20_000]] * 3,
        checkpoint_us=[[7000, 0]] * 3,
    )
    held = amounts(job_ledger(JOB, save, STEPS, matrices=[saved]))
    assert held["checkpoint"] == 2 * 20_000 + 3 * 7000


def test_pipeline_bubble_by_schedule_where_waits_are_measured() -> None:
    part = matrix(
        stage=2,
        duration_us=[[100_000, 100_000]] * 3,
        wait_us=[[30_000, 5000]] * 3,
        transfer_us=[[2000, 2000]] * 3,
        compute_us=[[60_000, 90_000]] * 3,
    )
    sized = JOB | {"pp_size": 2, "micro_batches": 9}
    held = amounts(job_ledger(sized, EVENTS, STEPS, matrices=[part]))
    # (p - 1) / (v m + p - 1) = 1/10 of a step of 100 ms
    assert held["pipeline_bubble"] == 3 * (10_000 + 5000)
    assert held["straggler_wait"] == 3 * 20_000
    chunked = job_ledger(sized | {"vpp_size": 11}, EVENTS, STEPS, matrices=[part])
    assert chunked.gpu_us("pipeline_bubble") == 3 * (1000 + 1000)
    unknown = job_ledger(JOB, EVENTS, STEPS, matrices=[part])
    assert unknown.row("pipeline_bubble").gpu_us is None
    assert "micro-batches" in unknown.row("pipeline_bubble").note


def test_the_denominator_is_chosen_and_carried() -> None:
    paid = [Allocation(0, 500_000, 3)]
    bill = job_ledger(JOB, EVENTS, STEPS, paid=paid)
    assert bill.denominator is Denominator.PAID
    assert bill.total_gpu_us == 1_500_000
    assert bill.gpu_us("unallocated") == 700_000
    held = job_ledger(JOB, EVENTS, STEPS, paid=paid, denominator=Denominator.ALLOCATED)
    assert held.total_gpu_us == 800_000
    assert held.row("unallocated").gpu_us is None
    assert "denominator" in held.row("unallocated").note
    assert held.measures()["goodput_ratio"].inputs == ("allocated time",)
    alone = job_ledger(JOB, EVENTS, STEPS)
    assert "held time is taken as paid" in alone.row("unallocated").note
    long = JOB | {"end_us": 9_000_000}
    with pytest.raises(IntegrityError, match=r"j: .* more are held than were paid for"):
        job_ledger(long, EVENTS, STEPS, paid=[Allocation(0, 400_000, 2)])


def test_a_record_of_nothing_explains_nothing() -> None:
    bill = job_ledger(JOB, [], [])
    assert amounts(bill) == {"unexplained": 800_000}
    assert bill.row("unexplained").note == "nothing was recorded of what the job did"
    assert bill.measures()["goodput_ratio"].reason == "no step that counts was recorded"
    assert bill.measures()["mfu_ratio"].reason == "no step that counts was recorded"
    assert bill.measures()["at_risk_gpu_hours"].reason == "no saves are on record"
    assert bill.level is Level.LOG
    empty = job_ledger(JOB | {"end_us": 0}, [], [], usd_per_gpu_hour=Decimal(2))
    assert empty.total_gpu_us == 0
    assert empty.total_usd is None
    assert empty.measures()["scheduling_ratio"].reason == "there is no time to share"
    assert empty.unexplained.value is None


RUNS = [
    event("allocated", 0),
    event("failure", 100_000),
    event("process_end", 100_000),
    event("allocated", 160_000, 1),
    event("process_end", 400_000, 1),
]


def test_between_two_allocations_a_job_holds_nothing() -> None:
    bill = job_ledger(JOB, RUNS, [])
    assert bill.total_gpu_us == 2 * (100_000 + 240_000)
    assert [f.kind for f in bill.findings] == ["released"]
    # The same runs in one allocation: what passes in between was paid for.
    kept = [e for e in RUNS if e["kind"] != "allocated" or not e["attempt"]]
    assert job_ledger(JOB, [*kept, event("restart", 160_000, 1)], []).total_gpu_us == 800_000


def test_what_a_scheduler_alone_tells_is_no_loss_and_no_zero() -> None:
    bill = job_ledger(JOB, RUNS, [])
    assert amounts(bill) == {"unexplained": bill.total_gpu_us}
    for bucket in ("startup", "recovery", "lost_work", "checkpoint", "other_blocking"):
        row = bill.row(bucket)
        assert row.gpu_us is None, bucket
        assert row.note
    # A run that came to no step is recovery where other runs show their steps.
    step = {"step": 0, "start_us": 20_000, "duration_us": 60_000}
    assert job_ledger(JOB, RUNS, [step]).gpu_us("recovery") == 2 * 240_000


def test_steps_come_from_the_matrices_where_there_is_no_summary() -> None:
    timed = replace(TWO, start_us=np.array([[40_000.0] * 2, [140_000.0] * 2, [270_000.0] * 2]))
    by_rank = job_ledger(JOB, EVENTS, None, matrices=[timed])
    assert amounts(by_rank) == amounts(job_ledger(JOB, EVENTS, STEPS, matrices=[TWO]))
    laid = job_ledger(JOB, EVENTS, None, matrices=[TWO])
    assert laid.gpu_us("compute") == 3 * 115_000
    assert laid.findings[0].kind == "inferred"


def test_when_and_on_how_many_devices_a_job_ran() -> None:
    running = JOB | {"end_us": None}
    assert job_ledger(running, EVENTS, STEPS).total_gpu_us == 2 * 390_000
    assert job_ledger(running, EVENTS, STEPS, until_us=500_000).total_gpu_us == 1_000_000
    late = job_ledger(running | {"start_us": None}, EVENTS, STEPS)
    assert late.total_gpu_us == 2 * 370_000
    assert [f.kind for f in late.findings] == ["inferred", "inferred"]
    assert job_ledger(JOB | {"world_size": None}, EVENTS, None, matrices=[TWO]).total_gpu_us
    grown = [Allocation(0, 200_000, 2), Allocation(200_000, 400_000, 4)]
    assert job_ledger(JOB, EVENTS, STEPS, allocations=grown).total_gpu_us == 1_200_000
    bare = {"job_id": "x"}
    assert job_ledger(bare, [], [], allocations=grown).total_gpu_us == 1_200_000
    for job, error, text in (
        (bare, NotFoundError, "x: it is not known how many devices"),
        (bare | {"world_size": 3}, NotFoundError, "nothing tells when"),
        (JOB | {"end_us": -5}, IntegrityError, "j: the job ends 5 us before it starts"),
        (JOB | {"time_basis": "relative"}, UserError, "normalised"),
    ):
        with pytest.raises(error, match=text):
            job_ledger(job, [], [])
    with pytest.raises(IntegrityError, match=r"holds \[2, 4\] devices"):
        job_ledger(JOB | {"world_size": 4}, EVENTS, STEPS, matrices=[TWO])
    with pytest.raises(UserError, match="normalised"):
        job_ledger(JOB, EVENTS, STEPS, matrices=[replace(TWO, time_is_relative=True)])
    with pytest.raises(IntegrityError, match="step 0 is in two windows"):
        job_ledger(JOB, EVENTS, STEPS, matrices=[TWO, TWO])


def test_a_waterfall_that_does_not_close_cannot_be_made() -> None:
    bill = job_ledger(JOB, EVENTS, STEPS, usd_per_gpu_hour=Decimal(3600))
    with pytest.raises(IntegrityError, match="j: buckets hold"):
        replace(bill, total_gpu_us=bill.total_gpu_us + 1)
    with pytest.raises(IntegrityError, match="j: buckets cost"):
        replace(bill, total_usd=Decimal("1.00"))
    assert bill.priced(None).total_usd is None
    assert bill.priced(Fraction(7)).total_usd == Decimal("7.00")
    nothing = within(bill, -10, -5)
    assert nothing.total_gpu_us == 0
    with pytest.raises(IntegrityError, match="no time to divide"):
        nothing.priced(Fraction(1))


def test_useful_time_of_a_step_needs_a_peak_and_a_convention() -> None:
    h100 = peak("NVIDIA H100 80GB HBM3", "bf16")
    found = step_flops({"bf16": 989.5e12}, {"bf16": h100}, convention="6N")
    assert found.useful_gpu_us == pytest.approx(1_000_000)
    assert found.recompute_gpu_us is None
    assert "convention 6N; bf16 peak 989.5 TFLOP/s" in found.note
    again = step_flops(
        {"bf16": 989.5e12}, {"bf16": h100}, convention="6N", hfu_factor=Measure(1.25, "ratio")
    )
    assert again.recompute_gpu_us == pytest.approx(250_000)
    mine = step_flops({"bf16": 1e12}, {"bf16": given_peak(1.0, "dense", "bf16")}, convention="6N")
    assert mine.useful_gpu_us == 1_000_000
    unknown = step_flops({"bf16": 1e12}, {"bf16": peak("Abacus 9", "bf16")}, convention="6N")
    assert unknown.useful_gpu_us is unknown.recompute_gpu_us is None
    assert unknown.reason.startswith("no peak: ")
    assert step_flops({}, {}, convention="6N").reason == "no model FLOPs known"
    with pytest.raises(UserError, match="at least 1"):
        step_flops({"bf16": 1.0}, {"bf16": h100}, convention="6N", hfu_factor=Measure(0.5, "ratio"))
