"""Folders of the files that ranks write, and what commands say of damage and of their bases."""

from __future__ import annotations

import gzip
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steptax.app.cli import main
from steptax.benchmarks.product.kineto import Job, write
from steptax.benchmarks.product.kineto_peer import RefusedError, duel

Steptax = Callable[..., Any]
Shared = Callable[[str], Path]


def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> str:
    """What a command prints for people, in a terminal of 80 columns."""
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["steptax", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    return capsys.readouterr().out


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    """A folder with the traces of four ranks, one packed, one broken."""
    folder = tmp_path / "traces-of-j"
    folder.mkdir()
    paths, _ = write(Job(ranks=4, steps=2, layers=2), folder)
    paths[2].with_name("rank2.json.gz").write_bytes(gzip.compress(paths[2].read_bytes()))
    paths[2].unlink()
    paths[3].write_text("{}")
    return folder


def test_a_folder_of_traces_is_one_job(ranks: Path, steptax: Steptax) -> None:
    done = steptax("ingest", "kineto", ranks)
    assert done["job_ids"] == ["traces-of-j"]
    assert [i["source"] for i in done["ingests"]] == [
        "kineto:rank0.json", "kineto:rank1.json", "kineto:rank2.json.gz",
    ]  # fmt: skip
    assert done["tables"]["steps"]["accepted"] == 3 * 2
    named = steptax("ingest", "kineto", ranks, "--job", "other")
    assert named["job_ids"] == ["other"]


def test_profile_reads_a_folder(
    ranks: Path, steptax: Steptax, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    whole = steptax("profile", ranks)
    assert [r["rank"] for r in whole["ranks"]] == [0, 1, 2]
    one = steptax("profile", ranks / "rank1.json")
    assert one["ranks"][0]["breakdown"] == whole["ranks"][1]["breakdown"]
    text = printed(monkeypatch, capsys, "profile", ranks)
    assert "Shares of the window from the first device operation" in text
    assert "rank3.json" in text


def test_a_folder_without_a_trace_says_what_it_looked_for(tmp_path: Path, steptax: Steptax) -> None:
    for command in (("ingest", "kineto"), ("profile",)):
        error = steptax(*command, tmp_path, fails=2)
        assert "holds no kineto file: none is called *.json, *.json.gz" in error["message"]


def test_a_folder_of_nccl_tests(shared: Shared, tmp_path: Path, steptax: Steptax) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for name in ("rccl_allreduce_mi300x_1node.txt", "rccl_allreduce_mi300x_2node.txt"):
        shutil.copy(shared(f"connectors/nccl_tests/{name}"), folder)
    (folder / "notes.txt").write_text("nothing of the kind\n")
    done = steptax("ingest", "nccl-tests", folder)
    assert len(done["ingests"]) == 2
    assert done["tables"]["bench_results"]["accepted"] > 100


def test_a_repaired_trace_is_profiled_with_a_warning_and_its_events(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = shared("cases/17-trace-corrupt-or-huge/control_char.json")
    text = printed(monkeypatch, capsys, "profile", path)
    assert "1 of 3 events were no valid JSON" in text
    cut = shared("cases/17-trace-corrupt-or-huge/truncated.json")
    assert "2 whole events were read" in printed(monkeypatch, capsys, "profile", cut)


def test_idle_says_what_it_is_a_share_of(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = shared("connectors/kineto/hta_nccl_args_rank0of2_step4.json.gz")
    lake = ("--lake", tmp_path / "lake")
    text = printed(monkeypatch, capsys, "ingest", "kineto", path, *lake)
    assert "of the profiled steps, taken whole, from mark to mark" in text


def test_the_worst_relative_scores_come_first(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    log = tmp_path / "report.log"
    rows = [(3, 0.91), (9, 0.52), (4, 0.77)]
    individual = [(r, 0.10 + r / 100) for r in range(5)]
    log.write_text(
        "GPU relative performance:\n Worst performing 3/16 ranks:\n"
        + "".join(f"  Rank={r} Node=n Score={s:.2f}\n" for r, s in rows)
        + "GPU individual performance:\n Worst performing 5/16 ranks:\n"
        + "".join(f"  Rank={r} Node=n Score={s:.2f}\n" for r, s in individual)
    )
    lake = ("--lake", tmp_path / "lake")
    printed(monkeypatch, capsys, "ingest", "nvrx", log, "--job", "nv", *lake)
    text = printed(monkeypatch, capsys, "job", "nv", *lake)
    line = next(one for one in text.splitlines() if "newest report" in one)
    told = line.split("newest report")[1]
    assert told.index("rank 9 lowest, GPU relative") < told.index("rank 4 lowest, GPU relative")
    assert told.index("rank 4 lowest, GPU relative") < told.index("rank 3 lowest, GPU relative")
    assert told.index("rank 3 lowest, GPU relative") < told.index("GPU individual performance")


def test_tables_of_collectives_keep_their_words(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = shared("connectors/nccl_tests/rccl_allreduce_mi300x_1node.txt")
    lake = ("--lake", tmp_path / "lake")
    printed(monkeypatch, capsys, "ingest", "nccl-tests", path, "--job", "b", *lake)
    text = printed(monkeypatch, capsys, "collectives", "--job", "b", *lake)
    head = next(one for one in text.splitlines() if one.startswith("bytes"))
    assert len(head.split()) > 3
    # One line of the table for each size, however narrow the terminal is.
    sizes = [one for one in text.splitlines() if " GB/s" in one and one[:1].isdigit()]
    assert len(sizes) > 10


def test_a_place_on_a_node_is_no_uuid(tmp_path: Path, steptax: Steptax) -> None:
    path = tmp_path / "nccl.prom"
    path.write_text(
        "".join(
            f'nccl_bus_bandwidth_gbs{{collective="AllReduce",node="{node}",gpu="GPU0",'
            f'message_size="1MB",comm_name="tp"}} {value}\n'
            for node, value in (("n1", 100.0), ("n2", 50.0))
        )
    )
    done = steptax("ingest", "nccl-inspector", path, "--job", "j")
    assert done["tables"]["bench_results"] == {"accepted": 2, "rejected": 0, "stored_before": 0}
    gauges = steptax("collectives", "--job", "j")["gauges"]
    assert sorted(g["gpu_uuid"] for g in gauges) == ["GPU0 of n1", "GPU0 of n2"]


def test_one_trace_that_is_refused_is_told_by_the_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_text("{}")
    with pytest.raises(RefusedError, match=r"none\.json: not read here: .*no trace"):
        duel(path, Path(sys.executable))
