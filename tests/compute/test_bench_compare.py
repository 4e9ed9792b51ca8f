"""Verdicts on benchmark figures: noise, bases in their order, Xids, and the alpha-beta fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.bench.acceptance import accept
from steptax.app.compute.bench.bases import BasisKind, Figure, bases
from steptax.app.compute.bench.compare import Status, compare, worst
from steptax.app.compute.causes.xid import xid_meaning
from steptax.app.compute.collectives.alpha_beta import fit_alpha_beta, steps_of
from steptax.app.compute.collectives.bus_bandwidth import Collective, Point
from steptax.app.compute.collectives.times import ring_all_reduce_s

STEADY = (100.0, 101.0, 99.0, 100.5, 99.5)
Repeats = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=8)


class TestCompare:
    @pytest.mark.parametrize(
        ("share", "status"),
        [(1.0, Status.PASS), (0.97, Status.PASS), (0.93, Status.WATCH), (0.88, Status.REJECT)],
    )
    def test_five_and_ten_percent_below_by_bandwidth_and_by_time(
        self, share: float, status: Status
    ) -> None:
        slower = [v * share for v in STEADY]
        assert compare(slower, STEADY, "GB/s").status is status
        longer = [v / share for v in STEADY]
        found = compare(longer, STEADY, "us")
        assert found.status is status
        assert found.gap.value == pytest.approx(1 - share)

    def test_no_verdict_where_the_noise_is_wider_than_the_gap(self) -> None:
        noisy = (60.0, 88.0, 130.0, 75.0, 101.0)
        found = compare(noisy, STEADY, "GB/s")
        assert found.gap.value == pytest.approx(0.12)
        assert (found.status, found.differs) == (Status.UNCLEAR, False)
        assert "may be chance" in found.reason

    def test_noise_that_would_hide_a_gap_is_no_pass(self) -> None:
        noisy = (70.0, 100.0, 130.0, 85.0, 115.0)
        found = compare(noisy, STEADY, "GB/s")
        assert found.status is Status.UNCLEAR
        assert "cannot be excluded" in found.reason

    def test_what_is_better_passes_and_says_so(self) -> None:
        found = compare([v * 1.2 for v in STEADY], STEADY, "GB/s")
        assert (found.status, found.differs) == (Status.PASS, True)
        assert found.reason.startswith("20 % better")

    @pytest.mark.parametrize(
        ("factor", "unit", "says"),
        [
            (27, "us", "27 times as long, more than 10 % slower"),
            (1.2, "us", "17 % slower, more than 10 %,"),
            (1 / 27, "us", "27 times as fast"),
            (1 / 27, "GB/s", "96 % below, more than 10 %,"),
            (3, "GB/s", "3 times as much"),
        ],
    )
    def test_a_gap_is_told_in_the_words_of_its_unit(
        self, factor: float, unit: str, says: str
    ) -> None:
        assert compare([v * factor for v in STEADY], STEADY, unit).reason.startswith(says)

    @pytest.mark.parametrize(
        ("own", "base", "why"),
        [
            (1, 1, "one repeat has no spread"),
            (2, 2, "repeats are too few (2 against 2)"),
            (1, 5, "repeats are too few (1 against 5)"),
            (4, 1, "repeats are too few (4 against 1)"),
            (5, 1, None),
            (3, 3, None),
            (1, 19, None),
        ],
    )
    def test_what_no_gap_could_show_is_not_judged(
        self, own: int, base: int, why: str | None
    ) -> None:
        # As far apart as can be, so that only the number of repeats can be in the way.
        found = compare([1.0] * own, [1e6 + i for i in range(base)], "GB/s")
        assert found.unjudged == why
        assert found.differs is (why is None)

    def test_two_repeats_cannot_be_told_from_chance(self) -> None:
        found = compare((80.0, 80.1), (100.0, 100.1), "GB/s")
        assert (found.status, found.p) == (Status.UNCLEAR, pytest.approx(1 / 6))

    def test_three_repeats_on_both_sides_are_enough(self) -> None:
        found = compare((80.0, 80.1, 79.9), (100.0, 100.1, 99.9), "GB/s")
        assert (found.status, found.p) == (Status.REJECT, pytest.approx(1 / 20))

    def test_against_one_number_five_repeats_are_enough(self) -> None:
        assert compare([80.0] * 4, [100.0], "GB/s").status is Status.UNCLEAR
        found = compare([80.0, 80.1, 80.2, 79.9, 79.8], [100.0], "GB/s")
        assert (found.status, found.p) == (Status.REJECT, pytest.approx(1 / 32))

    def test_one_figure_is_told_from_those_of_many_devices(self) -> None:
        fleet = [100 + 0.1 * i for i in range(20)]
        found = compare([88.0], fleet, "GB/s")
        assert (found.status, found.p) == (Status.REJECT, pytest.approx(1 / 21))
        wide = [60 + 4.0 * i for i in range(20)]
        assert compare([84.0], wide, "GB/s").status is Status.UNCLEAR

    @pytest.mark.parametrize(
        ("own", "base", "unit", "says"),
        [
            ((80.0,), (100.0,), "GB/s", "one repeat"),
            ((80.0,), STEADY, "GB/s", "may be chance"),
            ((), STEADY, "GB/s", "missing"),
            (STEADY, (0.0, 1.0), "GB/s", "not positive"),
            (STEADY, STEADY, "", "unit is not known"),
        ],
    )
    def test_what_cannot_be_compared_says_why(
        self, own: tuple[float, ...], base: tuple[float, ...], unit: str, says: str
    ) -> None:
        found = compare(own, base, unit)
        assert found.status is Status.UNCLEAR
        assert says in found.reason
        assert found.unjudged

    @given(Repeats, st.sampled_from(["GB/s", "us"]))
    @settings(max_examples=60)
    def test_a_run_never_differs_from_itself(self, values: list[float], unit: str) -> None:
        found = compare(values, values, unit)
        assert not found.differs
        assert found.status in (Status.PASS, Status.UNCLEAR)
        assert found.gap.value == pytest.approx(0)

    @given(Repeats, Repeats, st.floats(1e-3, 1e3))
    @settings(max_examples=60)
    def test_the_unit_of_measurement_changes_nothing(
        self, own: list[float], base: list[float], scale: float
    ) -> None:
        here = compare(own, base, "GB/s")
        there = compare([v * scale for v in own], [v * scale for v in base], "GB/s")
        assert here.gap.value == pytest.approx(there.gap.value, rel=1e-6, abs=1e-9)

    def test_the_gravest_counts(self) -> None:
        assert worst([Status.PASS, Status.WATCH, Status.UNCLEAR]) is Status.WATCH
        assert worst([]) is Status.UNCLEAR


def figure(run: str = "now", device: str = "GPU-1", day: int = 9, **changes: object) -> Figure:
    known = Figure(
        run, "node-1", device, "NVIDIA A100-SXM4-80GB", "gemm", "8192x8192x8192", "bf16",
        "TFLOP/s", tuple(v * 2.6 for v in STEADY), day, 1, 1,
    )  # fmt: skip
    return replace(known, **changes)  # type: ignore[arg-type]


class TestBases:
    def test_they_come_in_their_order(self) -> None:
        fleet = [figure(f"f{i}", f"GPU-{i}", i, host="node-2") for i in range(2, 6)]
        history = [figure("first", day=1), figure("second", day=5), *fleet, figure()]
        found = bases(figure(), history)
        assert [b.kind for b in found] == list(BasisKind)
        assert found[0].source == "run first"
        assert found[1].source == "median of 4 other devices"
        assert found[2].values == (261.23,)
        assert found[3].values == (312,)

    def test_a_named_baseline_goes_before_the_oldest(self) -> None:
        history = [figure("first", day=1), figure("second", day=5)]
        assert bases(figure(), history, "second")[0].source == "run second"

    def test_later_runs_other_shapes_and_small_fleets_are_none(self) -> None:
        history = [
            figure("later", day=20),
            figure("shape", day=1, size="4096x4096x4096"),
            figure("a", "GPU-2", 1),
            figure("b", "GPU-3", 1),
            figure("c", "GPU-4", 1, device_model="NVIDIA H100 80GB HBM3"),
        ]
        kinds = [b.kind for b in bases(figure(), history)]
        assert kinds == [BasisKind.REFERENCE, BasisKind.SPEC]

    def test_an_unknown_device_has_none(self) -> None:
        assert bases(figure(device_model=None), []) == []


class TestAcceptance:
    def test_the_first_basis_decides_and_the_others_stand_beside_it(self) -> None:
        slow = figure(repeats=tuple(v * 2.6 * 0.85 for v in STEADY))
        found = accept("node-1", [slow], [figure("first", day=1)])
        (check,) = found.checks
        assert (found.status, check.status) == (Status.REJECT, Status.REJECT)
        assert check.basis is not None
        assert check.basis.kind is BasisKind.BASELINE
        assert [b.kind for b, _ in check.others] == [BasisKind.REFERENCE, BasisKind.SPEC]

    def test_a_spec_alone_is_a_share_and_no_verdict(self) -> None:
        near = figure(test="memory triad", size="1", unit="GB/s", dtype="fp32")
        found = accept("node-1", [near], [])
        assert found.status is Status.UNCLEAR
        assert found.checks[0].reason == "13 % of the spec; a spec is no threshold"
        above = replace(near, repeats=(9000.0,) * 5)
        assert "check the unit" in accept("node-1", [above], []).checks[0].reason

    def test_a_reference_is_of_the_best_shape(self) -> None:
        small = figure(size="512x512x512", repeats=(50.0,) * 5)
        found = accept("node-1", [figure(), small], [])
        kinds = [c.basis.kind for c in found.checks if c.basis]
        assert kinds == [BasisKind.REFERENCE, BasisKind.SPEC]
        assert found.status is Status.PASS

    @pytest.mark.parametrize(
        ("xid", "status"),
        [(79, Status.REJECT), (48, Status.REJECT), (94, Status.WATCH), (63, Status.PASS)],
    )
    def test_an_xid_counts_by_its_severity(self, xid: int, status: Status) -> None:
        found = accept("node-1", [figure()], [figure("first", day=1)], [("GPU-1", xid)])
        assert found.status is status
        assert (f"Xid {xid}" in found.sentence) is (status is not Status.PASS)

    def test_without_anything_to_compare_there_is_no_verdict(self) -> None:
        found = accept("node-1", [figure(device_model=None)], [])
        assert found.status is Status.UNCLEAR
        assert "nothing to compare with" in found.sentence

    def test_a_code_that_is_not_in_the_table_is_watched(self) -> None:
        assert xid_meaning(9999).status is Status.WATCH


class TestAlphaBeta:
    @given(
        st.integers(2, 64),
        st.floats(1e-6, 1e-4),
        st.floats(1e9, 1e12),
    )
    @settings(max_examples=60)
    def test_a_ring_gives_back_its_latency_and_bandwidth(
        self, n: int, alpha_s: float, bytes_per_s: float
    ) -> None:
        sizes = [8 << (2 * i) for i in range(16)]
        points = [Point(s, ring_all_reduce_s(n, s, alpha_s, bytes_per_s)) for s in sizes]
        found = fit_alpha_beta(Collective.ALL_REDUCE, n, points)
        assert found.alpha_us.value == pytest.approx(alpha_s * 1e6, rel=1e-3)
        assert found.bus_gb_per_s.value == pytest.approx(bytes_per_s / 1e9, rel=1e-3)
        assert found.rms_ratio == pytest.approx(0, abs=1e-3)
        assert not found.warnings

    def test_what_is_no_line_says_so_with_its_residuals(self) -> None:
        points = [Point(8, 1e-5), Point(1 << 10, 9e-5), Point(1 << 20, 1e-4), Point(1 << 24, 9e-2)]
        found = fit_alpha_beta(Collective.BROADCAST, 4, points)
        assert found.rms_ratio is not None
        assert found.rms_ratio > 0.25
        assert [size for size, _ in found.residuals] == [8, 1 << 10, 1 << 20, 1 << 24]
        assert "one line" in found.warnings[0]

    def test_too_few_sizes_give_no_line(self) -> None:
        found = fit_alpha_beta(Collective.ALL_REDUCE, 4, [Point(8, 1e-5), Point(16, 1e-5)])
        assert found.alpha_us.value is None
        assert "4 sizes" in (found.alpha_us.reason or "")

    def test_steps_of_a_ring(self) -> None:
        told = {op: steps_of(op, 8) for op in Collective}
        assert (told[Collective.ALL_REDUCE], told[Collective.ALL_TO_ALL]) == (14, 7)
        assert told[Collective.SEND_RECV] == 1
