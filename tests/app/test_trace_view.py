"""The what-if view of a job: grids, timelines, the rail, and what is shown without a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from steptax.app.compute.measure import Measure
from steptax.app.errors import NotFoundError, UserError
from steptax.app.views.trace.models import GanttBars, StepGantt, TraceView
from steptax.app.views.trace.text import as_text
from steptax.app.views.trace.view import (
    TraceJob,
    open_trace,
    open_trace_file,
    rail_answer,
    trace_grid,
    trace_step,
    trace_view,
)
from steptax.app.views.workspace import open_workspace
from steptax.app.whatif.pattern import PatternKind

Shared = Callable[[str], Path]
Steptax = Callable[..., Any]


def opened(shared: Shared, name: str) -> TraceJob:
    sizes = yaml.safe_load(shared(f"ops/meta-{name}.yaml").read_text())
    return open_trace_file(shared(f"ops/trace-{name}.parquet"), sizes)


@pytest.fixture(scope="module")
def ar(shared: Shared) -> TraceJob:
    return opened(shared, "AR")


@pytest.fixture(scope="module")
def st(shared: Shared) -> TraceJob:
    return opened(shared, "ST")


@pytest.fixture
def steps_job(steptax: Steptax, tmp_path: Path) -> TraceJob:
    """Two stages of three ranks, one of which is slow; no operations."""
    lines = ["step,rank,dp,pp,duration_ms,compute_ms,comm_ms"]
    for step in range(40):
        for rank in range(6):
            stage, dp = divmod(rank, 3)
            busy = (90 if stage else 110) + (60 if rank == 4 else 0)
            lines.append(f"{step},{rank},{dp},{stage},200,{busy},{200 - busy}")
    path = tmp_path / "steps.csv"
    path.write_text("\n".join(lines) + "\n")
    steptax("ingest", "steps", path, "--job", "s")
    return open_trace(open_workspace(tmp_path / "lake"), "s")


def measures(view: object) -> list[Measure]:
    return [v for f in fields(view) if isinstance(v := getattr(view, f.name), Measure)]  # type: ignore[arg-type]


def test_the_whole_view_of_a_slow_worker(ar: TraceJob) -> None:
    view = trace_view(ar, Decimal("2.50"), price_note="the test says so")
    assert view.basis == "graph"
    assert view.reliable
    assert view.doubts == ()
    assert view.price.basis.endswith("the test says so")
    assert view.S.value == pytest.approx(1.973045, abs=1e-6)
    assert view.step_ms.value == pytest.approx(46649.2, abs=0.1)
    assert view.ideal_step_ms.value == pytest.approx(23484.7, abs=0.1)
    assert view.recovered.usd_per_day.value == pytest.approx(1893.7, abs=1)
    assert view.by_optype[0].key == "backward-compute"
    assert [b.key for b in view.by_stage] == ["0", "1", "2", "3"]
    assert [b.label for b in view.by_dp_rank] == ["DP 0", "DP 1", "DP 2", "DP 3"]
    # S_x - 1 over S - 1.
    assert "59.7 % of what the job loses" in view.by_optype[0].title
    assert view.workers[0].rank == 0
    assert view.workers[0].highlighted
    assert sum(w.highlighted for w in view.workers) == 1
    assert view.worker_count == 16
    assert view.pattern.kind is PatternKind.WORKER
    assert view.no_graph is None
    assert view.version == ""
    for measure in measures(view):
        assert measure.value is not None or measure.reason


def test_steps_and_their_grids(ar: TraceJob) -> None:
    view = trace_view(ar)
    assert view.steps is not None
    assert len(view.steps.steps) == 44
    assert view.steps.S.mean() == pytest.approx(view.S.value)
    assert set(view.steps.slowest_rank.tolist()) == {0}
    whole = trace_grid(ar)
    assert whole is not None
    assert whole.step is None
    assert whole.slowdown.shape == whole.ranks.shape == (4, 4)
    assert whole.slowdown[0, 0] == pytest.approx(1.97304, abs=1e-5)
    assert np.argwhere(whole.highlighted).tolist() == [[0, 0]]
    one = trace_grid(ar, 16)
    assert one is not None
    analysis = ar.analysis
    assert analysis is not None
    by_dp, by_stage = analysis.by_dp_s[0], analysis.by_stage_s[0]
    np.testing.assert_allclose(
        one.slowdown, np.minimum(by_dp[None, :], by_stage[:, None]) / analysis.ideal_finish_s
    )
    assert view.steps.S[0] == pytest.approx(one.S)
    assert (one.colour_low, one.colour_high) == (whole.colour_low, whole.colour_high)
    with pytest.raises(NotFoundError, match="step 17 is not among the analysed ones"):
        trace_grid(ar, 17)


def test_a_healthy_job_needs_no_repair(shared: Shared) -> None:
    view = trace_view(open_trace_file(shared("ops/A_pp4.parquet")))
    assert view.sentence.startswith("No straggler: ")
    assert not any(f.suggested for f in view.fixes)
    assert view.M_W.value is None
    assert "nothing to take apart" in (view.M_W.reason or "")


def test_a_simulation_that_is_off_gives_no_verdict(shared: Shared) -> None:
    view = trace_view(open_trace_file(shared("ops/D_vpp2_ovlp.parquet")))
    assert not view.reliable
    assert view.doubts[0].startswith("simulated and measured steps differ by 22.3 %")
    assert view.sentence.startswith("No verdict, since simulated and measured steps differ")
    assert view.pattern.kind is PatternKind.UNTELLABLE
    assert "Doubt: simulated and measured" in as_text(view)


def bars_of(gantt: StepGantt) -> tuple[GanttBars, GanttBars]:
    return gantt.original, gantt.ideal


def test_a_step_drawn_whole(st: TraceJob) -> None:
    gantt = trace_step(st, 23)
    analysis = st.analysis
    assert analysis is not None
    operations, _, dps = analysis.model.trace.shape
    assert gantt.note is None
    assert gantt.ranks_shown == gantt.ranks_total == 8
    assert gantt.original_ms == pytest.approx(analysis.model.work.base_s[0] * 1e3)
    assert gantt.ideal_ms == pytest.approx(analysis.ideal_span_s * 1e3)
    assert gantt.span_ms >= gantt.ideal_ms
    for bars in bars_of(gantt):
        assert len(bars.name) == len(bars.lane) == operations * dps
        assert (bars.merged == 1).all()
        assert (bars.end_ms >= bars.start_ms - 1e-9).all()
        assert (np.diff(bars.lane) >= 0).all()
    assert gantt.ideal.end_ms.max() == pytest.approx(gantt.ideal_ms)
    last = max(gantt.lanes, key=lambda lane: (lane.stage, lane.dp))
    assert last.label.startswith("rank 7 ")
    micro = gantt.original.micro_batch[
        gantt.original.op_type == gantt.op_types.index("forward-compute")
    ]
    assert set(micro.tolist()) == set(range(micro.max() + 1))


def test_a_long_step_is_merged_and_zooming_shows_all(ar: TraceJob) -> None:
    gantt = trace_step(ar, 16, max_bars=800)
    assert gantt.note is not None
    assert "zoom in" in gantt.note
    for bars in bars_of(gantt):
        assert len(bars.lane) <= 400
    # 16 ranks with 5,328 bars in both timelines; a tenth of the step has a tenth of them.
    window = (1000.0, 4000.0)
    part = trace_step(ar, 16, window_ms=window, max_bars=2000)
    assert part.window_ms == window
    assert part.note is None
    for bars in bars_of(part):
        assert (bars.merged == 1).all()
        assert (bars.start_ms <= window[1]).all()
        assert (bars.end_ms >= window[0]).all()
    one = trace_step(ar, 16, ranks=[0])
    assert {lane.rank for lane in one.lanes} == {0}
    assert one.note == "1 of 16 ranks are drawn"


def test_what_is_merged_is_counted(ar: TraceJob) -> None:
    whole = trace_step(ar, 16, ranks=[0, 16], max_bars=10**6)
    small = trace_step(ar, 16, ranks=[0, 16], max_bars=400)
    for bars, all_bars in zip(bars_of(small), bars_of(whole), strict=True):
        if "longest" in (small.note or ""):
            assert bars.merged.sum() <= len(all_bars.lane)
        else:
            assert bars.merged.sum() == len(all_bars.lane)
        assert bars.wait_ms.sum() <= all_bars.wait_ms.sum() + 1e-6


def test_what_cannot_be_drawn(ar: TraceJob, steps_job: TraceJob) -> None:
    with pytest.raises(NotFoundError, match="step 17"):
        trace_step(ar, 17)
    with pytest.raises(NotFoundError, match="rank 1 is not in the trace"):
        trace_step(ar, 16, ranks=[1])
    with pytest.raises(UserError, match="is empty"):
        trace_step(ar, 16, window_ms=(5.0, 5.0))
    with pytest.raises(UserError, match="only per-rank steps are stored"):
        trace_step(steps_job, 3)


def test_every_fix_of_the_rail_can_be_asked(ar: TraceJob, st: TraceJob) -> None:
    for job in (ar, st):
        view = trace_view(job)
        assert len({f.id for f in view.fixes}) == len(view.fixes) == 12
        for fix in view.fixes:
            assert fix.available, fix.reason
            answer = rail_answer(job, [fix.fill()], Decimal(2))
            assert answer.fixes
            assert answer.recovered.usd_per_day.value is not None
        every = [f.fill() for f in view.fixes if f.id != "layers"]
        together = rail_answer(job, every, Decimal(2))
        assert len(together.fixes) == len(every)
        assert together.step_after_ms.value is not None
        assert together.step_before_ms.value is not None
        assert together.step_after_ms.value < together.step_before_ms.value


def test_the_rail_suggests_what_the_pattern_says(ar: TraceJob, st: TraceJob) -> None:
    slow, heavy = trace_view(ar), trace_view(st)
    assert [f.id for f in slow.fixes if f.suggested] == ["ranks"]
    assert [f.id for f in heavy.fixes if f.suggested] == ["stages"]
    ranks = slow.fixes[0]
    assert (ranks.id, ranks.fill()) == ("ranks", "ranks:0")
    stage = next(f for f in heavy.fixes if f.id == "stage")
    assert stage.fill() == "stage:3"
    assert stage.fill(stage="1") == "stage:1"
    kernel = next(f for f in slow.fixes if f.id == "kernel")
    assert kernel.fill(factor="3") == "kernel:*-compute:3"


def test_combinations_are_no_sums(ar: TraceJob) -> None:
    def saved(*fixes: str) -> float:
        return rail_answer(ar, fixes).recovered.s_per_step.value or 0.0

    assert saved("ranks:0", "stage:0") < 1.1 * saved("ranks:0")
    both = rail_answer(ar, ["ranks:0", "kernel:*-compute:2"], Decimal("2.5"))
    assert both.S_before.value == pytest.approx(1.97305, abs=1e-5)
    assert both.text.startswith("If rank 0 is like the others; *-compute is 2 times as fast: ")
    assert both.sim_error.value == pytest.approx(0.0067, abs=1e-4)
    after = both.step_after_ms
    assert after.low is not None
    assert after.high is not None
    assert after.low < after.value < after.high
    assert rail_answer(ar, []).text == "Nothing is changed."


def test_the_curve_of_the_worst(ar: TraceJob) -> None:
    points = trace_view(ar, Decimal("2.5")).worst_k
    assert [p.k for p in points] == list(range(1, 9))
    assert points[0].rank == 0
    assert points[0].usd_per_day.value == pytest.approx(1897, abs=1)
    assert points[0].step_ms.value == pytest.approx(23445.8, abs=1)


def test_fixes_that_a_small_job_lacks(shared: Shared) -> None:
    view = trace_view(open_trace_file(shared("ops/B_pp1_dp4.parquet")))
    gone = {f.id: f.reason for f in view.fixes if not f.available}
    assert gone == dict.fromkeys(("stage", "stages", "layers"), "the job has one pipeline stage")
    view = trace_view(open_trace_file(shared("ops/E_nodp.parquet")))
    gone = {f.id: f.reason for f in view.fixes if not f.available}
    assert gone == {"dp": "the job has one data-parallel rank"}


def test_an_estimate_from_steps(steps_job: TraceJob) -> None:
    view = trace_view(steps_job, Decimal(2))
    assert view.basis == "estimate"
    assert "only per-rank steps are stored" in (view.no_graph or "")
    assert view.sentence.startswith("Per-rank estimate, no dependency graph: ")
    assert view.S.value is None
    assert view.steps is None
    assert view.by_stage == ()
    assert any("within their pipeline stage" in w for w in view.warnings)
    assert view.estimate.value is not None
    assert view.estimate.value > 1
    assert view.workers[0].rank == 4
    assert view.workers[0].slowdown == pytest.approx(150 / 90)
    assert view.heat is not None
    assert view.heat.slowdown[1, 1] == pytest.approx(150 / 90)
    assert view.heat.slowdown[0, 0] == pytest.approx(1)
    assert view.heat.highlighted[1, 1]
    assert view.pattern.kind is PatternKind.WORKER
    assert view.pattern.cells == ((1, 1),)
    assert {f.id for f in view.fixes if f.available} == {"ranks", "worst", "dp"}
    assert all(
        "needs a dependency graph" in (f.reason or "") for f in view.fixes if not f.available
    )
    # 150 ms becomes 90, and the latest of the others is at 110.
    answer = rail_answer(steps_job, ["ranks:4"], Decimal(2))
    assert answer.basis == "estimate"
    assert answer.step_after_ms.value == pytest.approx(160)
    assert answer.recovered.usd_per_day.value == pytest.approx(0.2 * 6 * 24 * 2)
    assert rail_answer(steps_job, ["worst:1"]).step_after_ms == answer.step_after_ms
    assert rail_answer(steps_job, ["dp:1"]).step_after_ms == answer.step_after_ms
    assert rail_answer(steps_job, []).recovered.share.value == 0
    with pytest.raises(UserError, match="needs a dependency graph"):
        rail_answer(steps_job, ["ranks:4", "stages"])
    assert view.worst_k[0].rank == 4
    assert "slowdown S, estimate" in as_text(view)


def test_normalised_durations_have_shares_only(steptax: Steptax, tmp_path: Path) -> None:
    lines = ["step,rank,duration,compute,comm"]
    for step in range(40):
        for rank in range(4):
            busy = 0.9 if rank == 1 else 0.5
            lines.append(f"{step},{rank},1.0,{busy},{1 - busy}")
    path = tmp_path / "steps.csv"
    path.write_text("\n".join(lines) + "\n")
    steptax("ingest", "steps", path, "--job", "n", "--time-unit", "relative")
    job = open_trace(open_workspace(tmp_path / "lake"), "n")
    view = trace_view(job, Decimal(2))
    assert view.step_ms.value is None
    assert "normalised" in (view.step_ms.reason or "")
    assert view.recovered.gpu_hours.value is None
    answer = rail_answer(job, ["ranks:1"], Decimal(2))
    assert answer.recovered.share.value == pytest.approx(0.4)
    assert answer.recovered.gpu_hours_per_day.value == pytest.approx(0.4 * 4 * 24)
    assert answer.recovered.usd.value is None
    assert "absolute times are not known" in answer.text


def test_a_large_job_is_cut_and_says_so(shared: Shared, steptax: Steptax, tmp_path: Path) -> None:
    file = shared("ops/trace-ST.parquet")
    steptax("ingest", "ops", file, "--meta", shared("ops/meta-ST.yaml"), "--job", "ST")
    ws = open_workspace(tmp_path / "lake")
    steps = sorted(set(pq.read_table(file, columns=["step"])["step"].to_pylist()))
    per_step = pq.read_metadata(file).num_rows // len(steps)
    job = open_trace(ws, "ST", max_rows=5 * per_step + 1)
    view = trace_view(job)
    assert view.steps is not None
    assert view.steps.steps.tolist() == steps[-5:]
    assert view.steps_note.startswith("the last 5 of 32 steps")
    assert view.steps_note in view.warnings
    some = open_trace(ws, "ST", max_rows=5 * per_step + 1, steps=[(steps[0], steps[2])])
    assert trace_view(some).steps.steps.tolist() == steps[:3]  # type: ignore[union-attr]
    whole = trace_view(open_trace(ws, "ST"))
    assert whole.warnings == tuple(w for w in whole.warnings if "operations" not in w)
    assert whole.version == ws.version("ST")


def test_hosts_are_named(shared: Shared, steptax: Steptax, tmp_path: Path) -> None:
    steptax("ingest", "ops", shared("ops/trace-ST.parquet"), "--job", "ST")
    job = open_trace(open_workspace(tmp_path / "lake"), "ST")
    named = TraceJob(
        job.job_id, job.result, job.pattern, job.steps_note, hosts={7: "node-3"}, layers=32
    )
    view: TraceView = trace_view(named)
    assert view.workers[0].host == "node-3"
    assert "DP 1, stage 3, node-3" in as_text(view)
    layers = next(f for f in view.fixes if f.id == "layers")
    assert layers.fill() == "layers:8,8,8,8>8,8,8,8"
    assert "not recorded" not in layers.parameters[0].label


def test_a_profile_of_four_ranks(shared: Shared, steptax: Steptax, tmp_path: Path) -> None:
    """Real PyTorch profiles, rank 1 slowed down: no pipeline, and yet who waits for whom."""
    folder = shared("connectors/kineto/gen_torch2.14_gloo_4ranks_a")
    steptax("ingest", "kineto", *sorted(folder.glob("*.json.gz")), "--job", "K")
    job = open_trace(open_workspace(tmp_path / "lake"), "K")
    view = trace_view(job, Decimal(2))
    assert view.basis == "graph"
    assert view.no_graph is None
    assert view.pattern.kind is PatternKind.WORKER
    assert view.workers[0].rank == 1
    assert view.workers[0].highlighted
    assert view.workers[0].stage is None
    assert view.heat is None
    assert view.steps is not None
    assert set(view.steps.slowest_rank.tolist()) == {1}
    assert "Rank 1 accounts for" in view.sentence
    gone = {f.id for f in view.fixes if not f.available}
    assert gone == {"stage", "dp", "stages", "layers", "microbatches", "gc"}
    for fix in view.fixes:
        if fix.available and fix.id != "kernel":
            assert rail_answer(job, [fix.fill()]).step_after_ms.value is not None
    fixed = rail_answer(job, ["ranks:1", "network:2"], Decimal(2))
    assert fixed.recovered.usd_per_day.value is not None
    assert fixed.recovered.usd_per_day.value > 50
    assert view.worst_k[0].rank == 1
    with pytest.raises(UserError, match="needs the schedule of a pipeline"):
        rail_answer(job, ["stages"])
    error = steptax("whatif", "export", "--job", "K", "-o", tmp_path / "k.json", fails=2)
    assert "opens in Perfetto as it is" in error["message"]
    some = view.steps.steps.tolist()[1:3]
    few = steptax("whatif", "stragglers", "--job", "K", "--steps", f"{some[0]}-{some[1]}")
    assert sorted(map(int, few["step_times"]["measured"])) == some
