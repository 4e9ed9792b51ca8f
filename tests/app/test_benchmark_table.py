"""The table of our own speed: its parts are there, and what they work out is right."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from steptax.app.lake import Segment
from steptax.benchmarks.product import cost, ingest, scale, table


def test_every_part_is_a_benchmark_and_what_cannot_run_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert table.main(["--list", "--full"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert listed == {
        *("queries", "ingest", "live", "recorder", "start", "whatif", "kineto", "sessions")
    }
    assert table.main(["--only", "whatif", "--whatif-data", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "not run: the traces of the published analyser are not here" in said
    with pytest.raises(SystemExit):
        table.main(["--only", "nothing"])


def test_a_part_that_misses_its_limits_fails_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    for module in ("scale", "ingest", "live_hour", "collector", "recorder", "start", "sessions"):
        assert importlib.import_module(f"steptax.benchmarks.product.{module}").main
    how, seconds = table.run(table.Part("x", "x", "recorder", ("--steps", "0")))
    assert (how, seconds > 0) == ("exit code 2", True)


def test_no_two_groups_of_segments_have_a_step_in_common() -> None:
    spans = [(0, 9), (10, 19), (15, 24), (20, 29), (30, 39), (40, 49)]
    segments = [Segment("steps", "j", Path(str(k)), a, b, 10) for k, (a, b) in enumerate(spans)]
    groups = scale.apart(segments[::-1], 20)
    assert [[(s.first, s.last) for s in group] for group in groups] == [
        spans[:2] + spans[2:4],
        spans[4:],
    ]
    assert [len(group) for group in scale.apart(segments, 1)] == [1, 3, 1, 1]


def test_costs_follow_from_sizes() -> None:
    rows = {row[0]: row[1:] for row in cost.table(cost.Sizes(10.0, 0.0, 0.0, 5.0), [1000], 2.0)}
    assert rows["rows of steps a day, million"] == ["43"]  # 1,000 x 86,400 / 2
    assert rows["GB of steps a day"] == ["0.43"]
    assert rows["GB of samples a day"] == ["0.04"]  # 1,000 each 10 s, 5 bytes
    assert rows["steps that a page reads row by row"] == ["2,097"]


def test_an_example_grows_and_is_read() -> None:
    told = ingest.read("steps", 0.05)
    assert told.whole
    assert told.rows > 500
    assert not ingest.read("slurm-rest", 0.05).whole
    assert ingest.store("steps", 1_000).rows >= 1_000
