"""Failures, fail-slow and places of a fleet: the mathematics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom, chi2, poisson

from steptax.app.compute.fleet.failures import failure_rate, over_expected, size_exponent, two_sided
from steptax.app.compute.fleet.offenders import Placed, offenders, tail
from steptax.app.compute.fleet.slow import (
    Episode,
    SlowFact,
    fail_slow_rows,
    share_of_slow,
    share_with_interval,
    spread,
    weighted_quantile,
)
from steptax.app.compute.fleet.states import (
    JobFact,
    by_size,
    by_state,
    failure_shares,
    size_class,
    size_order,
)
from steptax.app.compute.measure import Measure

UNTIMED = settings(max_examples=60)
STATES = ["completed", "failed", "cancelled", "timeout", "running", "pending", "unknown"]
FACTS = st.lists(
    st.builds(
        JobFact,
        job_id=st.text("abc", min_size=1, max_size=4),
        state=st.sampled_from(STATES),
        gpus=st.one_of(st.none(), st.sampled_from([0, 1, 2, 7, 8, 64, 5000])),
        gpu_hours=st.one_of(st.none(), st.floats(0, 1e6)),
        failures=st.one_of(st.none(), st.integers(0, 5)),
    ),
    min_size=1,
    max_size=40,
)


def fact(
    state: str, hours: float | None, gpus: int | None = 8, failures: int | None = 0
) -> JobFact:
    return JobFact("j", state, gpus, hours, failures)


def test_classes_of_size_have_no_gap() -> None:
    classes = [size_class(n) for n in range(1, 5000)]
    assert list(dict.fromkeys(classes)) == [
        "1", "2-7", "8-15", "16-63", "64-255", "256-1,023", "1,024-4,095", "4,096+",
    ]  # fmt: skip
    orders = [size_order(size) for size in classes]
    assert orders == sorted(orders)
    assert (size_class(None), size_class(0)) == ("not stated", "none")
    assert size_order("4,096+") < size_order("none") < size_order("not stated")


@UNTIMED
@given(FACTS)
def test_every_job_is_in_one_state_and_one_class(facts: Sequence[JobFact]) -> None:
    for rows in (by_state(facts), by_size(facts)):
        assert sum(row.jobs for row in rows) == len(facts)
        hours = math.fsum(row.gpu_hours.value or 0.0 for row in rows)
        assert hours == pytest.approx(math.fsum(f.gpu_hours or 0.0 for f in facts), abs=1e-6)
    shares = [row.gpu_hours_share.value for row in by_state(facts)]
    if any(f.gpu_hours for f in facts):
        assert math.fsum(s for s in shares if s is not None) == pytest.approx(1.0)
    else:
        assert shares == [None] * len(shares)


@UNTIMED
@given(FACTS)
def test_a_share_of_failures_lies_between_what_the_unknown_may_be(
    facts: Sequence[JobFact],
) -> None:
    found = failure_shares(facts)
    for share, weight in ((found.by_jobs, None), (found.by_gpu_hours, "gpu_hours")):
        ended = [f for f in facts if f.state not in ("running", "pending")]
        if weight:
            ended = [f for f in ended if f.gpu_hours is not None]
        size = [1.0 if weight is None else f.gpu_hours or 0.0 for f in ended]
        unknown = math.fsum(w for f, w in zip(ended, size, strict=True) if f.state == "unknown")
        if all(f.state == "unknown" for f in ended):
            assert share.value is None
        elif share.value is not None and unknown:
            assert share.low is not None
            assert share.high is not None
            assert share.low <= share.value + 1e-12
            assert share.value <= share.high + 1e-12
            assert share.high - share.low == pytest.approx(unknown / math.fsum(size))


def test_what_sums_many_jobs_has_hours_and_is_no_job() -> None:
    sums = [replace(fact(s, h, None), is_sum=True) for s, h in (("failed", 30.0), ("running", 10))]
    (failed, running) = by_state([*sums, fact("running", 20.0)])
    assert (failed.jobs, failed.gpu_hours.value, failed.jobs_share) == (None, 30.0, None)
    assert (running.jobs, running.gpu_hours.value) == (None, 30.0)
    only = failure_shares(sums)
    assert only.by_jobs.value is None
    assert "sums many jobs" in (only.by_jobs.reason or "")
    assert only.by_gpu_hours.value == 1.0
    rate = failure_rate(sums)
    assert rate.mtbf_gpu_hours.value is None
    assert "sums many jobs" in (rate.mtbf_gpu_hours.reason or "")
    # Beside jobs: the shares of jobs are of these alone.
    jobs = [fact("failed", 1.0, failures=1), fact("completed", 3.0)]
    mixed = failure_shares([*sums, *jobs])
    assert (mixed.by_jobs.value, mixed.by_gpu_hours.value) == (0.5, 31 / 34)
    assert mixed.by_jobs.warnings[0].startswith("without 1 sum of many jobs")
    assert failure_rate([*sums, *jobs]).gpu_hours == 4.0
    (row, *_) = by_size([*sums, *jobs])
    assert (row.size, row.jobs, row.jobs_by_state) == ("8-15", 2, {"failed": 1, "completed": 1})


def test_failures_by_jobs_and_by_hours_differ() -> None:
    facts = [fact("failed", 1.0)] * 9 + [fact("completed", 991.0)]
    found = failure_shares(facts)
    assert found.by_jobs.value == pytest.approx(0.9)
    assert found.by_gpu_hours.value == pytest.approx(9 / 1000)
    assert found.by_jobs.low is None
    nothing = failure_shares([fact("unknown", 5.0)] * 3)
    assert nothing.by_jobs.reason == "how it ended is known of none of 3 jobs"
    running = failure_shares([fact("running", 5.0)])
    assert running.by_jobs.reason == "no job has ended"


@UNTIMED
@given(count=st.integers(0, 200), hours=st.floats(1, 1e6))
def test_time_between_failures_has_its_exact_interval(count: int, hours: float) -> None:
    rate = failure_rate([fact("failed", hours, 8, count), fact("pending", None, 8, None)])
    assert rate.failures == count
    low = 2 * hours / chi2.ppf(0.975 if count else 0.95, 2 * count + 2)
    assert rate.mtbf_gpu_hours.low == pytest.approx(low)
    if count:
        assert rate.mtbf_gpu_hours.value == pytest.approx(hours / count)
        assert rate.mtbf_gpu_hours.high == pytest.approx(2 * hours / chi2.ppf(0.025, 2 * count))
        point = rate.model[0]
        assert point.mtbf_h.value == pytest.approx(hours / count / point.gpus)
        assert [p.beyond_h for p in rate.model] == [False, True, True, True, True]
    else:
        assert rate.mtbf_gpu_hours.value is None


def test_jobs_whose_failures_are_unknown_are_no_exposure() -> None:
    rate = failure_rate([fact("failed", 100.0, 8, 1), fact("unknown", 1e6, 8, None)])
    assert (rate.gpu_hours, rate.jobs, rate.left_out) == (100.0, 1, 1)
    assert any("left out: 1 job of which" in text for text in rate.limits)
    none = failure_rate([fact("unknown", 1e6, 8, None)])
    assert none.mtbf_gpu_hours.value is None
    assert "whether it failed" in (none.mtbf_gpu_hours.reason or "")


@UNTIMED
@given(total=st.integers(0, 60), share=st.floats(0.01, 0.99), data=st.data())
def test_the_tail_of_a_class_is_that_of_a_binomial(
    total: int, share: float, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, total))
    want = min(1.0, 2 * min(binom.cdf(count, total, share), binom.sf(count - 1, total, share)))
    assert two_sided(count, total, share) == pytest.approx(want, abs=1e-9)
    ratio = over_expected(count, total * share) if total else None
    if ratio is not None and count:
        assert ratio.low is not None
        assert poisson.sf(count - 1, ratio.low * total * share) == pytest.approx(0.025, abs=1e-6)


@pytest.mark.parametrize("b", [0.0, 0.5, 1.0])
def test_the_exponent_is_found_where_it_was_put(b: float) -> None:
    rng = np.random.default_rng(3)
    facts = []
    for gpus in (1, 8, 64, 512):
        job_hours = 20_000.0
        for _ in range(10):
            count = int(rng.poisson(0.002 * job_hours / 10 * gpus**b))
            facts.append(JobFact("j", "failed", gpus, job_hours / 10 * gpus, count))
    found = size_exponent(facts)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < b < found.high
    assert found.high - found.low < 0.4
    rate = failure_rate(facts)
    assert any(size.off_model for size in rate.sizes) == (b != 1.0)
    assert any("1/N does not hold" in text for text in rate.limits) == (b != 1.0)


def test_an_exponent_that_cannot_be_told_is_missing() -> None:
    assert "same number" in (size_exponent([fact("failed", 5.0, 8, 2)]).reason or "")
    only_small = [fact("failed", 5.0, 1, 2), fact("completed", 50.0, 64, 0)]
    assert "smallest" in (size_exponent(only_small).reason or "")
    sound = [fact("completed", 5.0, 1), fact("completed", 50.0, 64)]
    assert "no failure" in (size_exponent(sound).reason or "")


def one_host(host: str, hours: float, failures: int, kind: str = "8") -> Placed:
    return Placed(kind, hours, {host: 1.0}, shared=failures)


def test_a_busy_host_is_not_accused_and_a_bad_one_is() -> None:
    jobs = [one_host(f"node{i}", 100.0, 1) for i in range(50)]
    jobs += [one_host("busy", 1000.0, 10), one_host("bad", 100.0, 12)]
    found = {one.name: one for one in offenders(jobs)}
    assert [name for name, one in found.items() if one.is_named] == ["bad"]
    assert found["busy"].count == 10
    assert found["busy"].expected == pytest.approx(72 * 1000 / 6100)
    assert next(iter(found)) == "bad"


def test_a_host_that_runs_what_often_fails_is_not_accused() -> None:
    jobs = [one_host(f"a{i}", 100.0, 10, "1") for i in range(10)]
    jobs += [one_host(f"b{i}", 100.0, 0, "512") for i in range(90)]
    assert not any(one.is_named for one in offenders(jobs))
    mixed = [Placed("all", j.exposure, j.shares, j.shared) for j in jobs]
    assert any(one.is_named for one in offenders(mixed))


def test_a_failure_at_a_known_place_is_that_place_s_alone() -> None:
    both = {"a": 0.5, "b": 0.5}
    (first, second) = offenders([Placed("16", 10.0, both, shared=0, at={"a": 4})])
    assert (first.name, first.count, first.expected) == ("a", 4, pytest.approx(2.0))
    assert (second.count, second.expected) == (0, pytest.approx(2.0))
    shared = offenders([Placed("16", 10.0, both, shared=4)])
    assert [(one.count, one.expected) for one in shared] == [(4, pytest.approx(4.0))] * 2


def test_sound_hosts_are_rarely_named() -> None:
    rng = np.random.default_rng(1)
    named = 0
    for _ in range(40):
        hours = rng.uniform(1, 1000, 200)
        jobs = [one_host(f"n{i}", h, int(rng.poisson(0.01 * h))) for i, h in enumerate(hours)]
        named += any(one.is_named for one in offenders(jobs))
    assert named <= 5  # 5 % of 40 fleets are 2


@UNTIMED
@given(count=st.integers(0, 100), expected=st.floats(0, 100))
def test_the_tail_of_a_place_is_that_of_a_poisson(count: int, expected: float) -> None:
    assert tail(count, expected) == pytest.approx(poisson.sf(count - 1, expected), abs=1e-9)


@UNTIMED
@given(
    st.lists(st.tuples(st.floats(0, 10), st.integers(1, 20)), min_size=1, max_size=30),
    st.floats(0.01, 0.99),
)
def test_a_weighted_quantile_is_that_of_the_repeated_values(
    pairs: Sequence[tuple[float, int]], q: float
) -> None:
    values, weights = np.array([v for v, _ in pairs]), np.array([w for _, w in pairs])
    repeated = np.repeat(values, weights)
    want = np.quantile(repeated, q, method="inverted_cdf")
    got = weighted_quantile(values, weights.astype(float), q)
    # At a step of the distribution rounding may choose the value beside it.
    reached = np.mean(repeated <= got)
    assert got == want or abs(reached - q) < 1e-9


def slow(
    value: float | None, hours: float | None, *episodes: Episode, gpus: int = 8, reason: str = ""
) -> SlowFact:
    ratio = Measure.missing("x", "no phases") if value is None else Measure(value, "x")
    waste = ratio.map(lambda s: 1 - 1 / s, "ratio")
    return SlowFact("j", gpus, hours, ratio, waste, episodes, reason or None)


def episode(duration: float | None, lost: float | None = 1.0, *, is_open: bool = False) -> Episode:
    return Episode("rank 1", (1,), ("n1",), (), "clocks", 0.3, duration, is_open, lost)


def test_slow_jobs_count_once_and_by_their_hours() -> None:
    facts = [slow(1.05, 900.0), slow(1.10, 50.0), slow(2.0, 50.0), slow(None, 9e9)]
    assert share_of_slow(facts, by_hours=False).value == pytest.approx(2 / 3)
    by_hours = share_of_slow(facts, by_hours=True)
    assert by_hours.value == pytest.approx(0.1)
    assert "without 1 job," in by_hours.warnings[0]
    assert share_of_slow([slow(None, 1.0)], by_hours=True).reason == "no phases"
    waste = spread([(f.waste, f.gpu_hours) for f in facts], (0.5, 0.9))
    assert (waste.jobs, waste.unknown) == (3, 1)
    assert waste.mean.value == pytest.approx(
        (900 * (1 - 1 / 1.05) + 50 * (1 - 1 / 1.1) + 25) / 1000
    )
    (_, of_jobs, of_hours) = waste.quantiles[1]
    assert of_jobs.value == pytest.approx(0.5)
    assert of_hours.value == pytest.approx(1 - 1 / 1.05)
    assert "outermost" in of_jobs.warnings[0]


@UNTIMED
@given(of=st.integers(1, 400), data=st.data())
def test_a_share_has_its_exact_interval(of: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, of))
    share = share_with_interval(count, of)
    assert share.low == pytest.approx(beta.ppf(0.025, count, of - count + 1) if count else 0.0)
    assert share.high == pytest.approx(beta.ppf(0.975, count + 1, of - count) if count < of else 1)


def test_fail_slow_counts_jobs_in_which_it_can_be_told() -> None:
    facts = [
        slow(1.2, 10.0, episode(60.0), episode(600.0, None, is_open=True)),
        slow(1.0, 10.0),
        slow(None, 10.0, reason="one rank alone reports"),
        slow(1.0, 10.0, gpus=64),
    ]
    small, large, every = fail_slow_rows(facts)
    assert (small.jobs, small.affected, small.episodes) == (2, 1, 2)
    assert small.share.value == pytest.approx(0.5)
    assert small.median_s.value == pytest.approx(330.0)
    assert small.longest_s.warnings == ("1 of 2 still go on: at least",)
    assert small.lost_gpu_hours.value == pytest.approx(1.0)
    assert large.share.value == 0.0
    assert large.median_s.reason == "no episode was found"
    assert (every.size, every.jobs, every.affected) == ("all", 3, 1)
    (none, _) = fail_slow_rows([slow(None, 1.0, reason="one rank alone reports")])
    assert none.share.reason == "one rank alone reports"
