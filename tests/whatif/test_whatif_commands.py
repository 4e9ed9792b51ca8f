"""``steptax whatif`` from files and from a lake: published results, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from steptax.app.cli import main
from steptax.app.commands.trace_source import parse_steps
from steptax.app.errors import UserError
from steptax.app.views.trace.view import (
    TraceJob,
    open_trace,
    open_trace_file,
    rail_answer,
    trace_view,
)
from steptax.app.views.workspace import open_workspace

Shared = Callable[[str], Path]
Steptax = Callable[..., Any]
#: Trace, sizes, published result, most relative difference.
PUBLISHED = [
    ("trace-AR", "meta-AR", "result-AR", 1e-6),
    ("trace-ST", "meta-ST", "result-ST", 1e-6),
    ("A_pp4", "A_pp4", "A_pp4-reference-thres-0.5", 5e-6),
    ("B_pp1_dp4", "B_pp1_dp4", "B_pp1_dp4-reference-thres-0.5", 5e-6),
    ("D_vpp2_ovlp", "D_vpp2_ovlp", "D_vpp2_ovlp-reference-thres-0.5", 5e-6),
    ("E_nodp", "E_nodp", "E_nodp-reference-thres-0.5", 5e-6),
]
IDS = [row[0] for row in PUBLISHED]


def agrees(data: dict[str, Any], theirs: dict[str, Any], rel: float) -> None:
    """Every number that both have, by the names that ``whatif stragglers`` prints."""
    assert data["S"]["value"] == pytest.approx(theirs["blocking_slowdown"], rel=rel)
    assert data["waste"]["value"] == pytest.approx(
        1 - 1 / max(theirs["blocking_slowdown"], 0.1), rel=max(rel * 30, 1e-6)
    )
    assert data["launch_slowdown"]["value"] == pytest.approx(theirs["launch_slowdown"], rel=rel)
    compared = 0
    for ours, key in (("optype", "optype"), ("stage", "stage"), ("dp_rank", "dp_rank")):
        table = theirs[f"blocking_decompose_by_{key}"]
        if table is None:
            continue
        for name, value in table.items():
            if name == "first-op":  # Spurious there without pipeline.
                continue
            assert data[f"S_by_{ours}"][name]["value"] == pytest.approx(value, rel=rel), name
            compared += 1
    assert compared
    for name, key in (("measured", "step_t_base"), ("original", "step_t_nodelay")):
        for step, value in theirs[key].items():
            assert data["step_times"][name][step] == pytest.approx(value, rel=rel)
    for step, value in theirs["step_t_noblk"].items():
        assert data["step_times"]["ideal"][step] == pytest.approx(value, rel=rel)


@pytest.mark.parametrize(("trace", "meta", "result", "rel"), PUBLISHED, ids=IDS)
def test_published_results_from_a_file(
    shared: Shared, steptax: Steptax, trace: str, meta: str, result: str, rel: float
) -> None:
    file, sizes = shared(f"ops/{trace}.parquet"), shared(f"ops/{meta}.yaml")
    data = steptax("whatif", "stragglers", "--trace", file, "--meta", sizes)
    agrees(data, json.loads(shared(f"ops/{result}.json").read_text()), rel)
    assert data["basis"] == "graph"
    assert data["no_graph"] is None


@pytest.mark.parametrize(("trace", "meta", "result", "rel"), PUBLISHED, ids=IDS)
def test_published_results_through_a_lake(
    shared: Shared, steptax: Steptax, trace: str, meta: str, result: str, rel: float
) -> None:
    file, sizes = shared(f"ops/{trace}.parquet"), shared(f"ops/{meta}.yaml")
    steptax("ingest", "ops", file, "--meta", sizes, "--job", "j")
    data = steptax("whatif", "stragglers", "--job", "j", "--price", "2.50")
    # The lake holds whole nanoseconds.
    agrees(data, json.loads(shared(f"ops/{result}.json").read_text()), max(rel, 3e-6))
    world = data["recovered_gpu_hours"]["value"]
    assert data["recovered_usd"]["value"] == pytest.approx(world * 2.5)
    assert data["price"] == {
        "usd_per_gpu_hour": 2.5,
        "basis": "$2.50 per GPU-hour, you set it",
    }


@pytest.mark.parametrize(("name", "mw", "ms"), [("AR", 1.00170, -0.00121), ("ST", 0.0314, 1.21936)])
def test_shares_of_workers_and_last_stage(
    shared: Shared, steptax: Steptax, name: str, mw: float, ms: float
) -> None:
    data = steptax(
        "whatif",
        "stragglers",
        *("--trace", shared(f"ops/trace-{name}.parquet")),
        *("--meta", shared(f"ops/meta-{name}.yaml")),
        "--published",
    )
    assert data["M_W"]["value"] == pytest.approx(mw, abs=1e-4)
    assert data["M_S"]["value"] == pytest.approx(ms, abs=1e-4)
    published = data["published"]
    theirs = json.loads(shared(f"ops/result-{name}.json").read_text())
    assert published["blocking_decompose_by_stage_per_step"].keys() == (
        theirs["blocking_decompose_by_stage_per_step"].keys()
    )
    assert data["S_by_worker"][0]["rank"] == {"AR": 0, "ST": 7}[name]
    assert data["pattern"]["kind"] == {"AR": "worker", "ST": "stage"}[name]
    assert data["sim_error"]["value"] < 0.02


def test_a_price_and_a_day(shared: Shared, steptax: Steptax) -> None:
    """22.85 s of each of 44 steps of 46.3 s on 64 devices."""
    common = ("--trace", shared("ops/trace-AR.parquet"), "--meta", shared("ops/meta-AR.yaml"))
    data = steptax("whatif", "stragglers", *common, "--price", "2.50")
    assert data["recovered_gpu_hours"]["value"] == pytest.approx(17.875, abs=1e-2)
    assert data["recovered_usd"]["value"] == pytest.approx(44.69, abs=1e-2)
    assert data["recovered_usd_per_day"]["value"] == pytest.approx(1893.7, abs=1)
    assert "rank 0 (DP 0, stage 0)" in data["sentence"]
    assert "worth $1,894 a day" in data["sentence"]
    bare = steptax("whatif", "stragglers", *common)
    assert bare["recovered_usd"]["value"] is None
    assert bare["recovered_usd"]["reason"] == "no price per GPU-hour is known"
    assert "758 GPU-hours a day" in bare["sentence"]


def test_only_some_steps(shared: Shared, steptax: Steptax) -> None:
    """From a file and from the lake alike; the graph stays that of the whole trace."""
    file, sizes = shared("ops/trace-ST.parquet"), shared("ops/meta-ST.yaml")
    steptax("ingest", "ops", file, "--meta", sizes, "--job", "ST")
    last = sorted(set(pq.read_table(file, columns=["step"])["step"].to_pylist()))[-3:]
    asked = ("--steps", f"{last[0]}-{last[-1]}")
    from_file = steptax("whatif", "stragglers", "--trace", file, "--meta", sizes, *asked)
    from_lake = steptax("whatif", "stragglers", "--job", "ST", *asked)
    assert list(from_file["step_times"]["original"]) == [str(s) for s in last]
    assert from_lake["S"]["value"] == pytest.approx(from_file["S"]["value"], rel=3e-6)
    whole = steptax("whatif", "stragglers", "--job", "ST")
    assert whole["S"]["value"] != pytest.approx(from_lake["S"]["value"], rel=1e-6)
    error = steptax("whatif", "stragglers", "--job", "ST", "--steps", "1-2", fails=2)
    assert error["kind"] == "NotFoundError"
    assert "there are 23, " in error["hint"]


@pytest.mark.parametrize(("trace", "meta", "result", "rel"), PUBLISHED, ids=IDS)
def test_every_published_field_is_printed(
    shared: Shared, steptax: Steptax, trace: str, meta: str, result: str, rel: float
) -> None:
    """At the threshold that their results were made with, the echo of the sizes included."""
    theirs = json.loads(shared(f"ops/{result}.json").read_text())
    sizes = shared(f"ops/{meta}.yaml")
    low = ("--threshold", "0.5") if "0.5" in result else ()
    ours = steptax(
        *("whatif", "stragglers", "--published", "--trace", shared(f"ops/{trace}.parquet")),
        *("--meta", sizes, *low),
    )["published"]
    assert ours["job_meta"] == theirs["job_meta"]
    assert ours.keys() == theirs.keys()

    def same(one: Any, other: Any) -> None:
        if not isinstance(other, dict):
            assert one == (pytest.approx(other, rel=rel) if type(other) is float else other)
            return
        assert one.keys() == other.keys() - {"first-op"} | (one.keys() & {"first-op"})
        for name in one:
            same(one[name], other[name])

    same(ours, theirs)
    steptax("ingest", "ops", shared(f"ops/{trace}.parquet"), "--meta", sizes, "--job", "j")
    stored = steptax("whatif", "stragglers", "--published", "--job", "j")["published"]
    assert stored["job_meta"]["trial_name"] == theirs["job_meta"]["trial_name"]


def test_clocks_are_aligned_on_request(
    steptax: Steptax, tmp_path: Path, made_up: SimpleNamespace
) -> None:
    """One rank's clock is ahead: the answer is that of sound clocks, from a file and a lake."""
    rows = made_up.rows_of(made_up.Job(steps=4, stages=3, slow={(0, 1): 1.6}))
    late = [(*r[:5], r[5] + 0.05, *r[6:]) if r[2] == 3 else r for r in rows]
    paths = tmp_path / "sound.parquet", tmp_path / "late.parquet"
    for path, table in zip(paths, (rows, late), strict=True):
        pq.write_table(made_up.file_table(table), path)
    sound = steptax("whatif", "stragglers", "--trace", paths[0])
    as_it_is = steptax("whatif", "stragglers", "--trace", paths[1])
    steptax("ingest", "ops", paths[1], "--job", "late")
    assert any("unless the clocks are aligned" in w for w in as_it_is["warnings"])
    assert as_it_is["S"]["value"] != pytest.approx(sound["S"]["value"], rel=1e-2)
    for where in (("--trace", paths[1]), ("--job", "late")):
        aligned = steptax("whatif", "stragglers", *where, "--align-clocks")
        assert aligned["S"]["value"] == pytest.approx(sound["S"]["value"], rel=1e-3)
        assert any(w.endswith(": aligned") for w in aligned["warnings"])
        fixed = steptax("whatif", "fix", *where, "--align-clocks", "--worst", "1")
        assert fixed["S_before"]["value"] == pytest.approx(sound["S"]["value"], rel=1e-3)


def test_own_types_of_operations_are_taken_in_on_request(
    steptax: Steptax, tmp_path: Path, made_up: SimpleNamespace
) -> None:
    rows = made_up.rows_of(made_up.Job(steps=3))
    own = [(*r[:4], "tp-all-reduce", *r[5:]) for r in rows if r[4] == "gc"]
    path = tmp_path / "own.parquet"
    pq.write_table(made_up.file_table(rows + own), path)
    error = steptax("whatif", "stragglers", "--trace", path, fails=2)
    assert error["message"].startswith("unknown operation types: tp-all-reduce")
    assert "--in-stream" in error["hint"]
    steptax("ingest", "ops", path, "--job", "own")
    for where in (("--trace", path), ("--job", "own")):
        data = steptax("whatif", "stragglers", *where, "--in-stream", "tp-all-reduce")
        assert data["basis"] == "graph"
        assert "tp-all-reduce" in data["S_by_optype"]


def test_operations_that_all_start_at_once(
    steptax: Steptax, tmp_path: Path, made_up: SimpleNamespace
) -> None:
    """A recorder that forgot the starts: no graph, no usable rank, and a reason."""
    rows = made_up.rows_of(made_up.Job(steps=2))
    path = tmp_path / "zero.parquet"
    pq.write_table(made_up.file_table([(*r[:5], 0.0, *r[6:]) for r in rows]), path)
    data = steptax("whatif", "stragglers", "--trace", path)
    assert data["S"]["value"] is None
    assert data["no_graph"].startswith("no dependency graph: ")
    assert data["sentence"].startswith(("No answer: ", "Per-rank estimate"))


def test_what_like_the_others_means_is_said(
    shared: Shared, steptax: Steptax, tmp_path: Path
) -> None:
    """In a pipeline the mean of all ranks, in a profiler's trace that of the others."""
    folder = shared("connectors/kineto/gen_torch2.14_gloo_4ranks_a")
    steptax("ingest", "kineto", *sorted(folder.glob("rank*.gz")), "--job", "gloo")
    profiled = open_trace(open_workspace(tmp_path / "lake"), "gloo")
    recorded = open_trace_file(shared("ops/trace-AR.parquet"))

    def said(job: TraceJob, *fixes: str) -> str:
        return " ".join(rail_answer(job, fixes).warnings)

    assert "over all ranks, their own slowness included" in said(recorded, "ranks:0")
    for job, fix in ((recorded, "network:2"), (profiled, "ranks:1")):
        assert "over all ranks" not in said(job, fix)
    assert any("works like the other ranks" in w for w in trace_view(profiled).warnings)
    assert not any("more than the waste" in w for w in trace_view(recorded).warnings)


def test_threshold_decides_what_is_taken_apart(shared: Shared, steptax: Steptax) -> None:
    common = ("--trace", shared("ops/trace-ST.parquet"), "--published")
    high = steptax("whatif", "stragglers", *common, "--threshold", "1.5")
    low = steptax("whatif", "stragglers", *common, "--threshold", "1.0")
    assert high["published"]["blocking_decompose_by_stage"] is None
    assert low["published"]["launch_decompose_by_stage"] is not None
    assert high["pattern"]["kind"] == "none"
    assert low["pattern"]["kind"] == "stage"


@pytest.fixture
def ar(shared: Shared, steptax: Steptax) -> Callable[..., Any]:
    """A question about AR from its file."""
    common = ("--trace", shared("ops/trace-AR.parquet"), "--meta", shared("ops/meta-AR.yaml"))

    def ask(command: str, *arguments: object, fails: int = 0) -> Any:
        return steptax("whatif", command, *common, *arguments, fails=fails)

    return ask


def test_repairs(ar: Callable[..., Any]) -> None:
    one = ar("fix", "--ranks", "0", "--price", "2.50")
    assert one["step_after_ms"]["value"] == pytest.approx(23445.8, abs=1)
    assert one["step_before_ms"]["value"] == pytest.approx(46336.4, abs=1)
    assert one["S_after"]["value"] == pytest.approx(0.9983, abs=1e-3)
    assert one["recovered_usd_per_day"]["value"] == pytest.approx(1897, abs=1)
    assert one["basis"] == "graph"
    assert ar("fix", "--rank", "0")["step_after_ms"] == one["step_after_ms"]
    assert ar("fix", "--worst", "1")["step_after_ms"] == one["step_after_ms"]
    for flag, value in (("--stage", 0), ("--dp-rank", 0)):
        assert ar("fix", flag, value)["S_after"]["value"] < 1.02
    half = ar("fix", "--optype", "forward-compute")
    assert 23445 < half["step_after_ms"]["value"] < 46336
    both = ar("fix", "--ranks", "0", "--stage", "3", "--also", "kernel:*-compute:2")
    assert both["fixes"] == ["ranks:0", "stage:3", "kernel:*-compute:2"]
    assert both["step_after_ms"]["value"] < one["step_after_ms"]["value"] / 1.8


def test_other_changes(ar: Callable[..., Any]) -> None:
    assert ar("kernel", "--match", "*-compute", "--speedup", "2")["fixes"] == ["kernel:*-compute:2"]
    assert ar("network", "--speedup", "2")["recovered_share"]["value"] > 0
    assert ar("device", "--speedup", "0=2")["S_after"]["value"] == pytest.approx(1.065, abs=1e-2)
    assert ar("rebalance")["fixes"] == ["stages"]
    assert ar("rebalance", "--micro-batches")["fixes"] == ["microbatches"]
    moved = ar("rebalance", "--layers", "8,8,8,8", "--to", "9,9,9,5")
    assert moved["recovered_share"]["value"] < 0
    assert "makes the job slower" in moved["text"]
    assert "Nothing comes back" in ar("gc")["text"]


@pytest.mark.parametrize(
    ("command", "arguments", "kind", "message"),
    [
        ("fix", (), "UserError", "nothing to fix was named"),
        ("fix", ("--ranks", "zero"), "UserError", "expected ranks:0,7"),
        ("fix", ("--ranks", "99"), "NotFoundError", "rank 99 is not in the trace"),
        ("fix", ("--stage", "9"), "NotFoundError", "there is no stage 9"),
        ("fix", ("--optype", "conv"), "NotFoundError", "there is no operation type 'conv'"),
        ("fix", ("--also", "magic"), "UserError", "there is no fix 'magic'"),
        ("kernel", ("--match", "conv*", "--speedup", "2"), "UserError", "no operation matches"),
        ("kernel", ("--match", "*", "--speedup", "0"), "UserError", "a factor above 0"),
        ("kernel", ("--match", "*"), "UsageError", "--speedup"),
        ("network", ("--speedup", "nan"), "UserError", "a factor above 0"),
        ("device", ("--speedup", "fast"), "UserError", "expected device:1.2"),
        ("rebalance", ("--layers", "8,8,8,8"), "UserError", "--layers and --to go together"),
        ("rebalance", ("--layers", "8,8", "--to", "9,7"), "UserError", "expected 4 layer counts"),
        ("stragglers", ("--steps", "7-3"), "UserError", "expected steps as 16,20-40"),
        ("stragglers", ("--price", "-1"), "UserError", "expected a price above 0"),
        ("stragglers", ("--job", "x"), "UserError", "expected a job or a file, not both"),
        ("export", ("--steps", "17", "-o", "out.json"), "NotFoundError", "no recorded step lies"),
    ],
)
def test_mistakes_are_named(
    ar: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    arguments: tuple[str, ...],
    kind: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    error = ar(command, *arguments, fails=2)
    assert error["kind"] == kind
    assert message in error["message"]
    assert not list(tmp_path.glob("out.json*"))


def test_files_that_cannot_be_used(
    steptax: Steptax, tmp_path: Path, made_up: SimpleNamespace
) -> None:
    def refused(path: Path, *more: object) -> str:
        error = steptax("whatif", "stragglers", "--trace", path, *more, fails=2)
        return f"{error['where']}: {error['message']}; {error['hint']}"

    assert "no such file" in refused(tmp_path / "none.parquet")
    text = tmp_path / "text.parquet"
    text.write_text("rank,step\n")
    assert "cannot be read as Parquet" in refused(text)
    table = made_up.file_table(made_up.rows_of(made_up.Job()))
    partial = tmp_path / "partial.parquet"
    pq.write_table(table.drop_columns(["seq_id"]), partial)
    assert "no column seq_id" in refused(partial)
    good = tmp_path / "good.parquet"
    pq.write_table(table, good)
    meta = tmp_path / "meta.yaml"
    meta.write_text("dp_size: 2\npp_size: 2\ntp_size: 1\ndsp_size: 1\nworld_size: 5\n")
    assert "world_size is 5" in refused(good, "--meta", meta)
    assert "unknown unit 'h'" in refused(good, "--time-unit", "h")
    assert (
        "--meta goes with --trace"
        in (steptax("whatif", "stragglers", "--job", "x", "--meta", meta, fails=2)["message"])
    )
    assert steptax("whatif", "stragglers", "--trace", good)["reliable"]


def test_no_graph_gives_an_estimate_and_its_reason(
    steptax: Steptax, tmp_path: Path, made_up: SimpleNamespace
) -> None:
    """Two forward transfers of stage 0 are not recorded: nobody knows which passes they fed."""
    job = made_up.Job(dps=3, stages=2, micro=6, steps=12, slow={(1, 0): 2.0})
    rows = [
        r for r in made_up.rows_of(job) if not (r[4] == "forward-send" and r[1] == 0 and r[7] >= 3)
    ]
    path = tmp_path / "cut.parquet"
    pq.write_table(made_up.file_table(rows), path)
    steptax("ingest", "ops", path, "--job", "cut")
    for source in (("--trace", path), ("--job", "cut")):
        data = steptax("whatif", "stragglers", *source)
        assert data["S"]["value"] is None
        assert data["S"]["reason"].startswith("no dependency graph: ")
        assert data["no_graph"] == data["S"]["reason"]
        assert data["basis"] == "estimate"
        assert data["estimate"]["value"] > 1.2
        assert data["estimate"]["level"] == "L2"
        assert data["ranks"][0]["rank"] == job.rank(1, 0)
        assert "per-rank estimate, no dependency graph" in data["warnings"]
        assert any("within their pipeline stage" in w for w in data["warnings"])
        fixed = steptax("whatif", "fix", "--worst", "1", *source)
        assert fixed["basis"] == "estimate"
        assert fixed["recovered_share"]["value"] > 0.1
        refused = steptax("whatif", "fix", "--stage", "1", *source, fails=2)
        assert "needs a dependency graph" in refused["message"]
        error = steptax("whatif", "export", *source, "-o", tmp_path / "x.json", fails=2)
        assert "no dependency graph" in error["message"]


def test_a_job_of_per_rank_steps(steptax: Steptax, tmp_path: Path) -> None:
    """Four ranks, rank 2 computes 180 ms of each step and the others 100 ms."""
    lines = ["step,rank,duration_ms,compute_ms,comm_ms"]
    for step in range(60):
        for rank in range(4):
            busy = 180 if rank == 2 else 100
            lines.append(f"{step},{rank},200,{busy},{200 - busy}")
    path = tmp_path / "steps.csv"
    path.write_text("\n".join(lines) + "\n")
    steptax("ingest", "steps", path, "--job", "s")
    data = steptax("whatif", "stragglers", "--job", "s", "--price", "3")
    assert data["basis"] == "estimate"
    assert "only per-rank steps are stored" in data["no_graph"]
    # The mean rank works 120 of 200 ms: S = 200 / (200 - (180 - 120)).
    assert data["estimate"]["value"] == pytest.approx(200 / 140)
    assert data["S"]["value"] is None
    assert data["step_ms"]["value"] == pytest.approx(200)
    assert data["ideal_step_ms"]["value"] == pytest.approx(140)
    assert data["recovered_gpu_hours"]["value"] == pytest.approx(0.060 * 60 * 4 / 3600)
    assert data["recovered_usd_per_day"]["value"] == pytest.approx(0.3 * 4 * 24 * 3)
    assert data["pattern"]["kind"] == "worker"
    assert data["ranks"][0]["rank"] == 2
    assert data["ranks"][0]["slowdown"] == pytest.approx(1.8)
    fixed = steptax("whatif", "fix", "--ranks", "2", "--job", "s", "--price", "3")
    assert fixed["step_after_ms"]["value"] == pytest.approx(120)
    assert fixed["recovered_share"]["value"] == pytest.approx(0.4)
    assert fixed["recovered_usd_per_day"]["value"] == pytest.approx(0.4 * 4 * 24 * 3)
    nothing = steptax("whatif", "fix", "--ranks", "0", "--job", "s")
    assert nothing["recovered_share"]["value"] == pytest.approx(0)
    assert "rank 9" in steptax("whatif", "fix", "--ranks", "9", "--job", "s", fails=2)["message"]
    few = steptax("whatif", "stragglers", "--job", "s", "--steps", "10-39")
    assert few["recovered_gpu_hours"]["value"] == pytest.approx(0.060 * 30 * 4 / 3600)


def test_jobs_that_are_not_there(steptax: Steptax, shared: Shared) -> None:
    assert steptax("whatif", "stragglers", "--job", "x", fails=2)["kind"] == "NotFoundError"
    steptax("ingest", "ops", shared("ops/E_nodp.parquet"), "--job", "E")
    error = steptax("whatif", "stragglers", "--job", "x", fails=2)
    assert error["kind"] == "NotFoundError"
    assert "there is no job 'x'" in error["message"]


def test_export(shared: Shared, steptax: Steptax, tmp_path: Path) -> None:
    file = shared("ops/trace-ST.parquet")
    steptax("ingest", "ops", file, "--job", "ST")
    rows = pq.read_table(file, columns=["step"])["step"].to_pylist()
    out = tmp_path / "st.json"
    data = steptax("whatif", "export", "--job", "ST", "-o", out)
    slices = [e for e in orjson.loads(out.read_bytes())["traceEvents"] if e["ph"] == "X"]
    assert len(slices) == len(rows) == data["slices"]
    one = steptax("whatif", "export", "--job", "ST", "--steps", rows[0], "--ideal", "-o", out)
    events = orjson.loads(out.read_bytes())["traceEvents"]
    assert sum(e["ph"] == "X" for e in events) == 2 * rows.count(rows[0]) == one["slices"]
    assert list(tmp_path.glob("*.part")) == []


def test_the_report_for_people(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, meta = shared("ops/trace-AR.parquet"), shared("ops/meta-AR.yaml")

    def printed(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["steptax", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 0
        return capsys.readouterr().out

    common = ("--trace", trace, "--meta", meta, "--price", "2.5")
    text = printed("whatif", "stragglers", *common)
    for part in (
        "Without stragglers a step would take 23.5 s instead of 46.3 s: S 1.973, waste 49.3 %",
        "waste per day                  758 GPU-hours, $1,894 (1,873",
        "backward compute               1.581",
        "* rank 0 ",
        "* slow workers ",
        "What to do: swap or drain the named ranks' hosts",
    ):
        assert part in text
    answer = printed("whatif", "fix", "--ranks", "0", *common)
    assert answer.startswith("If rank 0 is like the others: a step takes 23.4 s instead of 46.3 s")
    assert "speed-up                       1.976" in answer


@pytest.mark.parametrize(
    ("text", "ranges"),
    [(None, ()), ("16", ((16, 16),)), ("16,20-40", ((16, 16), (20, 40))), (" 3 - 5 ", ((3, 5),))],
)
def test_steps_are_read(text: str | None, ranges: tuple[tuple[int, int], ...]) -> None:
    assert parse_steps(text) == ranges


@pytest.mark.parametrize("text", ["", "a", "5-", "-3", "5-4", "1,,2"])
def test_steps_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match="expected steps as"):
        parse_steps(text)
