"""The benchmark of the engine measures what it says, and compares with a peer that it is given."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from steptax.app.whatif import analyse_file
from steptax.benchmarks.product import whatif as benchmark

#: Stands for the published analyser: takes its arguments and writes a result.
PEER = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
for name in ("metadata", "trace", "trial", "analysis-result", "dump-dir", "root"):
    parser.add_argument("--" + name)
options = parser.parse_args()
result = pathlib.Path(__file__).with_name("result.json").read_text()
if options.trace:
    name = pathlib.Path(options.metadata).stem.removeprefix("meta-")
    (pathlib.Path(options.dump_dir) / (name + ".json")).write_text(result)
else:
    assert json.loads(pathlib.Path(options.analysis_result).read_text())
    kind = pathlib.Path(__file__).stem.removeprefix("compute_")
    said = pathlib.Path(__file__).with_name(kind + ".json").read_text()
    (pathlib.Path(options.dump_dir) / (kind + "-" + options.trial + ".json")).write_text(said)
# As the analyser does, which is imported as a package from the folder above.
import analyzer.shared
"""


@pytest.fixture
def data(tmp_path: Path, made_up: SimpleNamespace) -> Path:
    """Two made-up traces under the names of the real ones."""
    for name, stages in (("AR", 2), ("ST", 3)):
        job = made_up.Job(dps=2, stages=stages, spread=0.4, slow={(1, 0): 1.5})
        pq.write_table(made_up.file_table(made_up.rows_of(job)), tmp_path / f"trace-{name}.parquet")
        sizes = {"trial_name": name, "dp_size": 2, "dsp_size": 1}
        (tmp_path / f"meta-{name}.yaml").write_text(yaml.safe_dump(sizes))
    return tmp_path


def test_it_prints_one_object(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", str(data), "--runs", "2", "--tiles", "1", "3", "--json"]
    assert benchmark.main([*arguments, "--ranks", "9", "--steps", "5"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["warnings"] == [benchmark.NOT_SIDE_BY_SIDE]
    traces = {t["trace"]: t for t in result["data"]["traces"]}
    assert list(traces) == ["AR", "ST", "AR 1x", "AR 3x"]
    for t in traces.values():
        assert 0 < t["min_ms"] <= t["median_ms"]
        assert 0 < t["cpu_min_ms"] <= t["cpu_median_ms"]
        # An interpreter with numpy and pyarrow, and not what this process holds.
        assert 20 << 20 < t["peak_bytes"] < 1 << 30
        assert t["process_s"] * 1e3 > t["min_ms"]
    assert traces["AR 3x"]["rows"] == 3 * traces["AR"]["rows"]
    # Ranks that repeat others change nothing.
    assert traces["AR 3x"]["blocking_slowdown"] == pytest.approx(
        traces["AR"]["blocking_slowdown"], rel=1e-12
    )
    assert traces["AR"]["of_reference"] == pytest.approx(traces["AR"]["median_ms"] / 29.0)
    large = result["data"]["large"]
    # Four ranks at a time, so twelve; three steps are recorded, so two come again.
    assert (large["ranks"], large["steps"]) == (12, 5)
    assert large["rows"] == traces["AR"]["rows"] * 3 * 5 // 3


def test_it_prints_a_table(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", str(data), "--runs", "1", "--tiles", "2"]
    assert benchmark.main([*arguments, "--ranks", "4", "--steps", "2"]) == 0
    said = capsys.readouterr().out
    assert "of the reference time" in said
    assert "4 ranks x 2 steps" in said
    assert said.endswith(benchmark.NOT_SIDE_BY_SIDE + "\n")


@pytest.fixture
def peer(data: Path) -> Path:
    """A folder that stands for the published analyser, which finds what ours finds in AR."""
    tools = data / "peer" / "analyzer"
    tools.mkdir(parents=True)
    (tools / "shared.py").touch()
    for script in ("wia.py", "compute_ms.py", "compute_mw.py"):
        (tools / script).write_text(PEER)
    ours = analyse_file(data / "trace-AR.parquet", sizes=sizes_of(data)).as_json()
    say(tools, ours["blocking_slowdown"], ours["M_S"]["value"], ours["M_W"]["value"])
    return tools.parent


def sizes_of(data: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((data / "meta-AR.yaml").read_text())
    return found


def say(tools: Path, slowdown: float | None, m_s: float, m_w: float) -> None:
    said = {"blocking_slowdown": slowdown}
    (tools / "result.json").write_text(json.dumps(said))
    (tools / "ms.json").write_text(json.dumps({"Ms": m_s}))
    (tools / "mw.json").write_text(json.dumps({"Mw": m_w}))


def test_it_runs_a_peer_in_turn(
    data: Path, peer: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The peer runs in its own folder: what is relative here must be found from there.
    monkeypatch.chdir(data)
    shutil.copy("trace-AR.parquet", "trace-ST.parquet")
    (data / "meta-ST.yaml").write_text(yaml.safe_dump(sizes_of(data) | {"trial_name": "ST"}))
    arguments = ["--data", ".", "--runs", "1", "--tiles", "--peer", "peer"]
    assert benchmark.main([*arguments, "--peer-python", sys.executable, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["ok"], result["warnings"]) == (True, [])
    assert not any("of_reference" in trace for trace in result["data"]["traces"])
    first, second = result["data"]["side_by_side"]
    assert (first["trace"], second["trace"]) == ("AR", "ST")
    assert (first["compared"], first["largest_difference"]) == (3, 0.0)
    assert first["ratio"] == pytest.approx(first["peer_s"] / first["ours_s"])
    assert benchmark.main([*arguments]) == 0
    assert "AR side by side, whole processes" in capsys.readouterr().out


def test_a_peer_that_finds_something_else_fails(
    data: Path, peer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = analyse_file(data / "trace-AR.parquet", sizes=sizes_of(data)).as_json()
    found = (ours["blocking_slowdown"], ours["M_S"]["value"], ours["M_W"]["value"])
    arguments = ["--data", str(data), "--runs", "1", "--tiles", "--peer", str(peer), "--json"]
    for place in range(3):
        say(peer / "analyzer", *(v * (1.01 if k == place else 1.0) for k, v in enumerate(found)))
        assert benchmark.main(arguments) == 1
        result = json.loads(capsys.readouterr().out)
        assert not result["ok"]
        worst = result["data"]["side_by_side"][0]["largest_difference"]
        assert worst == pytest.approx(0.01 / 1.01, rel=1e-6)
    (peer / "analyzer" / "shared.py").write_text("raise SystemExit('sad')")
    assert benchmark.main(arguments) == 1
    result = json.loads(capsys.readouterr().out)
    assert len(result["data"]["traces"]) == 2, "what ours measured is told"
    assert "sad" in result["warnings"][0]


def test_what_is_compared_is_counted_and_what_lacks_differs() -> None:
    difference = benchmark._difference
    assert difference({"a": 1.0, "b": {"c": 2.0}}, {"a": 1.0, "b": {"c": 4.0, "d": "x"}}) == (
        2,
        0.5,
    )
    assert difference({}, {"a": 1.0}) == (1, math.inf)
    assert difference(None, {"a": {"b": 1.0}}) == (1, math.inf)
    assert difference({"a": math.nan}, {"a": 1.0}) == (1, math.inf)
    assert difference({"a": math.nan}, {"a": math.nan}) == (1, 0.0)
    assert difference({"a": 1.0}, {"a": None}) == (0, 0.0)


def test_what_fails_is_said(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="failed: sad"):
        benchmark.whole_process([sys.executable, "-c", "import sys; sys.exit('sad')"])
    for wrong, said in (
        (["--runs", "0"], "--runs must be at least 1"),
        (["--data", "nowhere"], "no trace-AR.parquet in nowhere"),
        (["--peer", "nowhere"], "no analyzer/wia.py in "),
    ):
        with pytest.raises(SystemExit):
            benchmark.main(["--data", str(data), *wrong])
        assert said in capsys.readouterr().err


def test_too_much_memory_fails(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "MOST_LARGE_BYTES", 1)
    arguments = ["--data", str(data), "--runs", "1", "--tiles", "--ranks", "4", "--steps", "1"]
    assert benchmark.main(arguments) == 1
