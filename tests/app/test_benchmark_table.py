"""The table of our own speed: its parts are there, and what they work out is right."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

import pytest

from steptax.app.lake import Segment
from steptax.benchmarks.product import cost, cost_requests, ingest, scale, table


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
    assert "not run, this is not here: the traces of the published analyser" in said
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
    rows = {
        row[0]: row[1:] for row in cost.table(cost.Sizes(10.0, 0.0, 0.0, 5.0, 20.0), [1000], 2.0)
    }
    assert rows["rows of steps a day, million"] == ["43"]  # 1,000 x 86,400 / 2
    assert rows["GB of steps a day"] == ["0.43"]
    assert rows["GB of samples a day"] == ["0.04"]  # 1,000 each 10 s, 5 bytes
    assert rows["GB of one profiled step"] == ["0.10"]  # 1,000 x 5,000, 20 bytes
    assert rows["steps that a page reads row by row"] == ["2,097"]


def test_a_rank_has_a_row_in_each_window_of_each_segment() -> None:
    """Counted one by one: segments of 64 and of 11 steps, and of more than a window."""
    day = 86_400
    spans = 16_384 * (day // 1_024 + day // 16_384)
    assert cost.rank_window_rows(16_384, day) == 16_384 * 1_350 + spans
    cuts = {*range(0, day, 256), *range(0, day, 11)}
    spans = 100_000 * (day // 1_024 + day // 16_384)
    assert cost.rank_window_rows(100_000, day) == 100_000 * len(cuts) + spans
    # A span of 1,024 steps is one segment of 1,024 ranks: nothing is added up to it.
    assert cost.rank_window_rows(1_024, day) == 1_024 * (338 + day // 16_384)


def test_what_a_store_is_asked_follows_from_its_parts_and_the_nodes() -> None:
    keys = [(w, k) for w in ("recorders", "compactor", "page") for k in ("PUT", "LIST", "GET")]
    requests = cost_requests.Requests(
        dict.fromkeys(keys, 2.0),
        {key: 12.0 if key == ("recorders", "PUT") else 0.0 for key in keys},
        Counter({("compactor", "steps"): 3, ("compactor", "live"): 5}),
        record=100.0,
        folded=10.0,
    )
    rows = {row[0]: row[1:] for row in cost.store_table(requests, [8, 80_000])}
    # A minute of a node: 2 + 12; a day 1,440 of them. Of 10,000 nodes 120,002.
    assert rows["PUT of recorders a day, million"] == ["0.02", "172.80"]
    # 6 segments a minute and node, that minute and five of grace: 360,000 names, 360 lists more.
    assert rows["LIST of the compactor a day"] == ["2,880", f"{1440 * (2 + 3 * 360 + 5 * 10):,}"]
    assert rows["log of commits, GB a day as written"] == ["0.00", "8.64"]
    assert rows["of that once folded, GB"] == ["0.00", "0.86"]
    put, lists, get = 1440 * 14, 1440 * 2, 1440 * 2
    usd = ((put + lists) * 0.005 + get * 0.0004) / 1000
    assert rows["USD a day: recorders"][0] == f"{usd:.2f}"


def test_an_example_grows_and_is_read() -> None:
    told = ingest.read("steps", 0.05)
    assert told.whole
    assert told.rows > 500
    assert not ingest.read("slurm-rest", 0.05).whole
    assert ingest.store("steps", 1_000).rows >= 1_000


def test_an_absent_peer_is_named_with_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = table.options(["--whatif-data", str(tmp_path)])
    (tmp_path / "trace-AR.parquet").touch()
    parts = {part.name: part for part in table.parts(told, tmp_path)}
    assert "HolisticTraceAnalysis" in parts["kineto"].missing
    assert "--trace-peer" in parts["kineto"].missing
    assert "--whatif-peer" in parts["whatif"].missing
    assert all(parts[name].runs for name in ("kineto", "whatif"))
    # Whoever reads "kept its limits" is told which; what only measures says that.
    assert {name for name, part in parts.items() if not part.limit} >= {"start", "ingest"}
    assert {"queries", "live", "recorder", "sessions"} <= {n for n, p in parts.items() if p.limit}
    given = ["--trace-peer", str(tmp_path), "--whatif-peer", str(tmp_path)]
    told = table.options([*given, "--whatif-python", str(tmp_path), "--whatif-data", str(tmp_path)])
    parts = {part.name: part for part in table.parts(told, tmp_path)}
    assert not any(parts[name].missing for name in ("kineto", "whatif"))
    want = ("--peer", str(tmp_path), "--peer-python", str(tmp_path))
    assert parts["whatif"].arguments[-4:] == want
    with pytest.raises(SystemExit):
        table.options(["--trace-peer", str(tmp_path / "none")])
    with pytest.raises(SystemExit):
        table.main(["--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in ("--trace-peer", "--whatif-python", "--whatif-data"))
