"""What-if answers on profiler traces, against jobs whose counterfactual is played again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.errors import InputError, NotFoundError, UserError
from steptax.app.whatif import WhatIfResult, analyse_ops
from steptax.app.whatif.generic import GenericAnalysis
from steptax.app.whatif.generic_clocks import estimate_clocks
from steptax.app.whatif.generic_questions import (
    combine_generic,
    faster,
    faster_network,
    fix_ranks,
)
from steptax.app.whatif.generic_rows import Collective
from steptax.benchmarks.product.kineto import Job, play, write
from steptax.connectors.base import Options
from steptax.connectors.registry import connector

Traced = Callable[[Job], pa.Table]


def ops_of(paths: Sequence[Path]) -> pa.Table:
    batches = [b for p in paths for b in connector("kineto").read(p, Options(job_id="j"))]
    tables = [b.rows for b in batches if b.table == "ops" and b.rows.num_rows]
    return pa.concat_tables(tables, promote_options="default")


@pytest.fixture
def traced(tmp_path: Path) -> Traced:
    """The operations of a job, as the connector reads its files."""
    return lambda job: ops_of(write(job, tmp_path)[0])


def generic(result: WhatIfResult) -> GenericAnalysis:
    assert result.generic is not None, result.S.reason
    return result.generic


def step_s(job: Job) -> float:
    return float(np.mean(play(job).step_us)) / 1e6


def without(table: pa.Table, mask: Any) -> pa.Table:
    return table.filter(pc.invert(pc.fill_null(mask, False)))


SLOW = Job(slow={2: 1.3})


class TestPlayedAgain:
    def test_the_slow_rank_is_named_with_what_it_does_more(self, traced: Traced) -> None:
        result = analyse_ops(traced(SLOW))
        found = generic(result).excess()
        kernels = SLOW.layers * (SLOW.forward_us + SLOW.backward_us + 2 * SLOW.norm_us)
        extra_s = 0.3 * (kernels + SLOW.optimiser_us) / 1e6
        assert result.slowest_ranks == (2,)
        assert result.S_by_worker[0].rank == 2
        assert found[2].value == pytest.approx(extra_s, rel=0.04)
        assert all((found[r].value or 0.0) < 0 for r in (0, 1, 3))
        assert result.reliable
        balanced_s = generic(result).ideal_s.mean()
        assert result.S.value == pytest.approx(step_s(SLOW) / balanced_s, rel=1e-3)
        assert result.M_W.value == pytest.approx(1.0, abs=0.05)

    def test_the_model_reproduces_what_it_was_made_of(self, traced: Traced) -> None:
        result = analyse_ops(traced(SLOW))
        assert result.replay_error.value == pytest.approx(0.0, abs=1e-9)
        assert generic(result).model.measured_s.mean() == pytest.approx(step_s(SLOW), rel=1e-6)
        assert result.sim_error.value < 0.001

    @pytest.mark.parametrize(
        ("job", "fix", "changed"),
        [
            (SLOW, "ranks:2", replace(SLOW, slow={})),
            (SLOW, "kernel:*gemm*:2", replace(SLOW, forward_us=450.0, backward_us=900.0)),
            (SLOW, "kernel:*layer_norm*:3", replace(SLOW, norm_us=50.0)),
            (SLOW, "network:3", replace(SLOW, transfer_us=400.0)),
            (Job(transfer_us=3000.0), "network:3", Job(transfer_us=1000.0)),
            (Job(transfer_us=3000.0), "kernel:all-reduce:2", Job(transfer_us=1500.0)),
            # All of the communication is hidden at first, and then is not.
            (
                Job(transfer_us=1700.0),
                "kernel:*gemm*:4",
                Job(transfer_us=1700.0, forward_us=225.0, backward_us=450.0),
            ),
            (
                SLOW,
                "device:1.5",
                replace(
                    SLOW,
                    forward_us=600.0,
                    backward_us=1200.0,
                    norm_us=100.0,
                    optimiser_us=700 / 1.5,
                ),
            ),
        ],
        ids=lambda v: v if isinstance(v, str) else "",
    )
    def test_an_answer_is_what_playing_the_change_gives(
        self, traced: Traced, job: Job, fix: str, changed: Job
    ) -> None:
        found = combine_generic(generic(analyse_ops(traced(job))), [fix]).answer
        true_s = step_s(job) - step_s(changed)
        saved = found.recovered.s_per_step
        assert saved.value == pytest.approx(true_s, rel=0.02, abs=5e-5)
        assert saved.low is not None
        assert saved.high is not None
        assert saved.low <= saved.value <= saved.high
        assert found.step_s.mean() == pytest.approx(step_s(changed), rel=0.02)

    def test_hidden_communication_bounds_a_faster_kernel(self, traced: Traced) -> None:
        """Needed at once or at the end of the step: the answer says how far that matters."""
        found = faster(generic(analyse_ops(traced(SLOW))), "*gemm*", 2.0)
        saved = found.recovered.s_per_step
        assert saved.low is not None
        assert saved.value is not None
        assert saved.low < saved.value * 0.99
        assert any("hidden communication" in w for w in saved.warnings)
        assert any("host" in w for w in found.warnings)

    def test_fixing_a_sound_rank_returns_nothing(self, traced: Traced) -> None:
        saved = fix_ranks(generic(analyse_ops(traced(SLOW))), [0]).recovered.s_per_step
        assert abs(saved.value or 0.0) < 0.002 * step_s(SLOW)

    def test_one_simulation_of_two_changes_is_not_the_sum(self, traced: Traced) -> None:
        job = Job(slow={1: 1.3, 2: 1.3})
        found = generic(analyse_ops(traced(job)))
        both = combine_generic(found, ["ranks:1,2"])
        each = [fix_ranks(found, [r]).recovered.s_per_step.value or 0.0 for r in (1, 2)]
        true_s = step_s(job) - step_s(replace(job, slow={}))
        assert both.answer.recovered.s_per_step.value == pytest.approx(true_s, rel=0.02)
        assert sum(each) < 0.2 * true_s
        assert both.slowdown.value == pytest.approx(1.0, abs=0.01)

    def test_a_slower_network_makes_the_job_slower(self, traced: Traced) -> None:
        saved = faster_network(generic(analyse_ops(traced(SLOW))), 0.25).recovered.s_per_step
        true_s = step_s(SLOW) - step_s(replace(SLOW, transfer_us=4 * SLOW.transfer_us))
        assert true_s < 0
        assert saved.value == pytest.approx(true_s, rel=0.02)

    def test_money(self, traced: Traced) -> None:
        table = traced(SLOW)
        result = analyse_ops(table, sizes={"world_size": 4}, price=2.0)
        share = result.recovered.share.value or 0.0
        assert result.recovered.usd_per_day.value == pytest.approx(share * 4 * 24 * 2.0)
        assert not result.recovered.usd_per_day.warnings[1:]

    @settings(
        max_examples=15,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(
        ranks=st.integers(2, 5),
        layers=st.integers(1, 5),
        transfer_us=st.floats(50.0, 5000.0),
        launch_us=st.floats(1.0, 400.0),
        jitter=st.floats(0.0, 0.2),
        slow=st.floats(1.0, 2.0),
        seed=st.integers(0, 99),
    )
    def test_any_such_job_is_reproduced(
        self,
        ranks: int,
        layers: int,
        transfer_us: float,
        launch_us: float,
        jitter: float,
        slow: float,
        seed: int,
        tmp_path: Path,
    ) -> None:
        job = Job(
            ranks=ranks,
            layers=layers,
            transfer_us=transfer_us,
            launch_us=launch_us,
            jitter=jitter,
            slow={ranks - 1: slow},
            seed=seed,
            steps=2,
        )
        result = analyse_ops(ops_of(write(job, tmp_path)[0]))
        found = generic(result)
        assert result.replay_error.value == pytest.approx(0.0, abs=1e-6)
        assert found.model.measured_s.mean() == pytest.approx(step_s(job), rel=1e-5)
        # Waiting is all that balance returns, so a balanced job is never slower.
        assert found.ideal_s.mean() <= found.nodelay_s.mean() * (1 + 1e-9)
        assert float(found.excess_s.mean(axis=0).sum()) == pytest.approx(0.0, abs=1e-9)


class TestClocks:
    def test_clocks_that_are_off_change_nothing_and_are_told(self, traced: Traced) -> None:
        true = analyse_ops(traced(SLOW))
        skewed = analyse_ops(traced(replace(SLOW, clock_us={1: 7_000.0, 3: -20_000.0})))
        assert skewed.S.value == pytest.approx(true.S.value, rel=1e-6)
        offset = generic(skewed).model.clocks.offset_s
        assert offset.tolist() == pytest.approx([0.0, 0.007, 0.0, -0.020], abs=1e-6)
        told = " ".join(skewed.warnings())
        assert "rank 3 is furthest off, by -20 ms (corrected)" in told
        assert "taken to end on all of their ranks at once" in told
        assert "ends agree to" in told

    def test_traces_without_a_common_clock(self, traced: Traced) -> None:
        """Each rank counts from its own moment, hours apart."""
        true = analyse_ops(traced(SLOW))
        apart = {r: r * 3.6e9 for r in range(4)}
        other = analyse_ops(traced(replace(SLOW, clock_us=apart)))
        assert other.S.value == pytest.approx(true.S.value, rel=1e-4)

    def test_small_disagreement_is_left_alone(self, traced: Traced) -> None:
        result = analyse_ops(traced(replace(SLOW, clock_us={1: 300.0})))
        assert "not corrected" in " ".join(result.warnings())
        forced = analyse_ops(traced(replace(SLOW, clock_us={1: 300.0})), align_clocks=True)
        assert "(corrected)" in " ".join(forced.warnings())

    @given(
        offsets=st.lists(st.integers(-(10**9), 10**9), min_size=3, max_size=6),
        noise=st.integers(0, 20),
        seed=st.integers(0, 99),
    )
    def test_offsets_are_found_over_chains_of_groups(
        self, offsets: list[int], noise: int, seed: int
    ) -> None:
        """Ranks 0-1, 1-2, 2-3, ... share groups; 0 and the last never meet."""
        dice = np.random.default_rng(seed)
        made = []
        for i in range(40 * (len(offsets) - 1)):
            pair = [i % (len(offsets) - 1), i % (len(offsets) - 1) + 1]
            one = Collective(0, "all-reduce", str(pair), i, 2)
            for rank in pair:
                end = 10**12 + i * 10**6 + offsets[rank] + int(dice.integers(-noise, noise + 1))
                one.rank.append(rank)
                one.start_ns.append(end - 1000)
                one.end_ns.append(end)
            made.append(one)
        clocks = estimate_clocks(made, len(offsets))
        want = np.array(offsets) / 1e9
        found = clocks.offset_s - clocks.offset_s[0]
        assert clocks.residual_s is not None
        # What two clocks show of one moment is off by the noise of both.
        assert clocks.residual_s <= 2 * noise / 1e9 + 1e-12
        assert found == pytest.approx(want - want[0], abs=2 * noise * len(offsets) / 1e9 + 1e-12)


class TestBroken:
    def refused(self, table: pa.Table, why: str, **options: Any) -> None:
        result = analyse_ops(table, **options)
        assert result.S.value is None
        assert why in (result.S.reason or "")
        assert result.generic is None
        assert result.slowest_ranks == ()
        assert not result.reliable
        assert result.as_json()["S"]["reason"]

    def test_one_rank_only(self, traced: Traced) -> None:
        table = traced(SLOW)
        self.refused(table.filter(pc.equal(table["rank"], 2)), "rank 2 is the only one")

    def test_a_rank_absent_is_told_as_such(self, traced: Traced) -> None:
        table = traced(SLOW)
        result = analyse_ops(table.filter(pc.not_equal(table["rank"], 2)), sizes={"world_size": 4})
        told = " ".join(result.warnings())
        assert "1 ranks of group default_pg:0/4 are not in the trace" in told
        assert "not there are 2" in told
        # Waiting for the absent one looks like transfer, and nobody present is accused.
        assert (result.S_by_optype["own-work"].value or 0.0) < 1.01
        assert not result.reliable
        assert "no verdict on the whole job" in " ".join(result.S.warnings)

    def test_a_missing_communication_costs_its_step(self, traced: Traced) -> None:
        table = traced(SLOW)
        gone = pc.and_(pc.equal(table["rank"], 1), pc.equal(table["step"], 11))
        gone = pc.and_(gone, pc.equal(table["op_type"], "all-reduce"))
        gone = pc.and_(gone, pc.equal(table["seq"], 5))
        result = analyse_ops(without(table, gone))
        [dropped] = result.findings.dropped
        assert (dropped.step, dropped.rank) == (11, 1)
        assert "all-reduce 5" in dropped.reason
        assert generic(result).model.step_labels == (10, 12, 13)
        assert result.slowest_ranks == (2,)

    def test_steps_that_not_all_recorded_are_left_out(self, traced: Traced) -> None:
        table = traced(SLOW)
        gone = pc.and_(pc.equal(table["rank"], 0), pc.equal(table["step"], 13))
        result = analyse_ops(without(table, gone))
        assert [(d.step, d.rank) for d in result.findings.dropped] == [(13, 0)]
        assert generic(result).model.step_labels == (10, 11, 12)

    def test_no_step_in_common(self, traced: Traced) -> None:
        table = traced(SLOW)
        early = pc.and_(pc.less(table["rank"], 2), pc.less(table["step"], 12))
        late = pc.and_(pc.greater_equal(table["rank"], 2), pc.greater_equal(table["step"], 12))
        self.refused(table.filter(pc.or_(early, late)), "no step was recorded on all ranks")

    def test_a_cut_trace_has_no_boundaries(self, traced: Traced) -> None:
        table = traced(SLOW)
        gone = pc.and_(pc.equal(table["rank"], 3), pc.equal(table["op_type"], "step"))
        self.refused(without(table, gone), "rank 3 has no step boundaries")

    def test_no_communication_at_all(self, traced: Traced) -> None:
        table = traced(SLOW)
        some = pc.is_in(table["op_type"], pa.array(["kernel", "step"]))
        self.refused(table.filter(some), "0 communications matched")

    def test_communications_that_cannot_be_the_same(self, traced: Traced) -> None:
        """Each collective of rank 1 ends at random moments: no clock explains that."""
        table = traced(SLOW)
        dice = np.random.default_rng(1)
        mine = pc.and_(pc.equal(table["rank"], 1), pc.equal(table["op_type"], "all-reduce"))
        shift = np.where(
            mine.to_numpy(zero_copy_only=False), dice.integers(0, 10**8, len(table)), 0
        )
        start = pa.array(table["start_ns"].to_numpy() + shift)
        place = table.column_names.index("start_ns")
        result = analyse_ops(table.set_column(place, "start_ns", start))
        assert result.S.value is None or not result.reliable
        assert "apart" in (result.S.reason or "") or result.S.warnings

    def test_unlabelled_communications_are_matched_only_if_they_overlap(
        self, traced: Traced
    ) -> None:
        table = traced(SLOW)
        names = [n for n in table.column_names if n != "group"]
        blank = table.select(names).append_column("group", pa.nulls(len(table), pa.string()))
        result = analyse_ops(blank)
        assert result.slowest_ranks == (2,)
        assert "the n-th of a kind is taken to be the same" in " ".join(result.warnings())
        late = pc.and_(pc.equal(blank["rank"], 1), pc.equal(blank["op_type"], "all-reduce"))
        keep = without(blank, pc.and_(late, pc.equal(blank["seq"], 0)))
        self.refused(keep, "no communication connects two ranks")

    def test_empty_cells_and_negative_durations_are_named(self, traced: Traced) -> None:
        table = traced(SLOW)
        place = table.column_names.index("duration_ns")
        values = table["duration_ns"].to_pylist()
        with pytest.raises(InputError, match="negative duration"):
            analyse_ops(table.set_column(place, "duration_ns", pa.array([-1, *values[1:]])))
        with pytest.raises(InputError, match="empty cell"):
            analyse_ops(
                table.set_column(place, "duration_ns", pa.array([None, *values[1:]], pa.int64()))
            )

    def test_two_jobs_are_refused(self, traced: Traced) -> None:
        table = traced(SLOW)
        place = table.column_names.index("job_id")
        names = pa.array(["a", *["b"] * (len(table) - 1)])
        with pytest.raises(InputError, match="expected one job"):
            analyse_ops(table.set_column(place, "job_id", names))

    def test_questions_that_do_not_fit(self, traced: Traced) -> None:
        found = generic(analyse_ops(traced(SLOW)))
        with pytest.raises(NotFoundError, match="rank 9 is not in the trace"):
            fix_ranks(found, [9])
        with pytest.raises(UserError, match="no operation matches"):
            faster(found, "*conv*", 2.0)
        with pytest.raises(UserError, match="a factor must be positive"):
            faster_network(found, 0.0)
        with pytest.raises(UserError, match="needs the schedule of a pipeline"):
            combine_generic(found, ["stage:1"])
        with pytest.raises(UserError, match="all ranks cannot be like the others"):
            fix_ranks(found, [0, 1, 2, 3])

    def test_steps_can_be_chosen(self, traced: Traced) -> None:
        table = traced(SLOW)
        assert generic(analyse_ops(table, steps=[11, 12])).model.step_labels == (11, 12)
        with pytest.raises(InputError, match="no step 99"):
            analyse_ops(table, steps=[99])
