"""The benchmark that kills writers: a kill of each kind of work, and that it sees a loss."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from steptax.benchmarks.product.kills import WORKS, Site, run


@pytest.mark.slow
def test_whoever_is_killed_nothing_is_lost_doubled_or_torn() -> None:
    found = run(len(WORKS), seed=1)
    assert [one.work for one in found] == list(WORKS)
    for one in found:
        assert one.faults == []
        assert (one.survived, one.tried) == (1, 1)
        assert one.rows_lost == one.rows_doubled == one.rows_torn == 0


@pytest.mark.parametrize("work", ["compact", "roll-up", "fold"])
def test_it_sees_a_segment_that_is_gone_and_one_that_is_there_twice(
    tmp_path: Path, work: str
) -> None:
    from steptax.app.lake import Lake

    site = Site(work, tmp_path / "site", random.Random(0))
    given = site._prepare()
    site._look("before", finished=False, given=given)
    assert site.outcome.faults == []
    name = "device_samples" if work == "roll-up" else "steps"
    found = Lake(site.lake).segments(name)[0]
    segment = found.path
    twin = segment.with_name(
        f"live-{10**16}-{found.first}-{found.last}-{found.rows}-{0:08x}.parquet"
    )
    twin.write_bytes(segment.read_bytes())
    site._look("twice", finished=False, given=given)
    assert site.outcome.rows_doubled > 0
    twin.unlink()
    segment.unlink()
    site._look("gone", finished=False, given=given)
    assert site.outcome.rows_lost > 0
