"""The what-if analysis of real profiler traces."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from steptax.app.whatif import WhatIfResult, analyse_ops
from steptax.app.whatif.generic_questions import fix_ranks
from steptax.connectors.base import Options
from steptax.connectors.registry import connector

Shared = Callable[[str], Path]
FOLDER = "connectors/kineto"
GLOO = f"{FOLDER}/gen_torch2.14_gloo_4ranks_a"


def analyse(folder: Path, pattern: str, **options: Any) -> WhatIfResult:
    batches = [
        b
        for path in sorted(folder.glob(pattern))
        for b in connector("kineto").read(path, Options(job_id="j"))
    ]
    tables = [b.rows for b in batches if b.table == "ops" and b.rows.num_rows]
    return analyse_ops(pa.concat_tables(tables, promote_options="default"), **options)


@pytest.fixture
def truth(shared: Shared) -> dict[int, list[dict[str, float]]]:
    """What each rank measured of itself in the profiled steps 2 to 5."""
    found = json.loads((shared(GLOO) / "ground_truth.json").read_text())
    return {int(r): [s for s in steps if s["step"] >= 2] for r, steps in found.items()}


def test_the_injected_straggler_is_named_although_all_steps_are_as_long(
    shared: Shared, truth: dict[int, list[dict[str, float]]]
) -> None:
    result = analyse(shared(GLOO), "rank*.gz")
    assert result.generic is not None
    assert result.slowest_ranks == (1,)
    assert result.S_by_worker[0].rank == 1
    compute = {r: np.mean([s["compute_ms"] for s in steps]) for r, steps in truth.items()}
    totals = [np.mean([s["total_ms"] for s in steps]) for steps in truth.values()]
    assert max(totals) / min(totals) < 1.03  # Step times do not tell.
    want_ms = compute[1] - np.mean([compute[r] for r in (0, 2, 3)])
    excess = result.generic.excess()
    assert excess[1].value == pytest.approx(want_ms / 1e3, rel=0.02)
    assert 85 < (excess[1].value or 0.0) * 1e3 < 95
    assert all((excess[r].value or 0.0) < 0 for r in (0, 2, 3))
    assert result.reliable
    # Three of four ranks wait for 90 ms: that share of the paid time is lost.
    assert result.waste.low is not None
    assert result.waste.low - 0.02 < 3 / 4 * want_ms / np.mean(totals) < (result.waste.value or 0)


def test_fixing_it_returns_its_excess(shared: Shared) -> None:
    result = analyse(shared(GLOO), "rank*.gz")
    assert result.generic is not None
    saved = {r: fix_ranks(result.generic, [r]).recovered.s_per_step.value for r in range(4)}
    assert saved[1] == pytest.approx(0.090, rel=0.03)
    assert all(abs(saved[r] or 0.0) < 0.004 for r in (0, 2, 3))


def test_subgroups_of_gloo_are_told_apart(shared: Shared) -> None:
    result = analyse(shared(GLOO), "rank*.gz")
    assert result.generic is not None
    collectives = [c for p in result.generic.model.plans for c in p.chain.collectives]
    ranks = {c.group: sorted(c.rank) for c in collectives}
    assert ranks == {"default_pg:0/4": [0, 1, 2, 3], "1/2": [0, 1], "2/2": [2, 3]}
    assert "furthest off" in " ".join(result.warnings())


def test_one_rank_of_it_is_refused_with_the_reason(shared: Shared) -> None:
    result = analyse(shared(GLOO), "rank1*.gz")
    assert result.S.value is None
    assert "nobody to compare it with" in (result.S.reason or "")


def test_without_the_culprit_nobody_is_accused(shared: Shared) -> None:
    result = analyse(shared(GLOO), "rank[023]*.gz", sizes={"world_size": 4})
    told = " ".join(result.warnings())
    assert "not there are 1" in told
    assert "are not in the trace: waiting for them counts as transfer" in told
    assert (result.S.value or 0.0) < 1.1


def test_two_of_128_ranks_without_groups_are_refused(shared: Shared) -> None:
    result = analyse(shared(f"{FOLDER}/hta_sampled_2of128ranks"), "rank*.gz")
    assert result.S.value is None
    assert "no communication connects two ranks" in (result.S.reason or "")


LATE_US = 20_000.0


def two_ranks(source: Path, folder: Path, late_us: float) -> Path:
    """A real trace of a device as that of two ranks, of which 1 computes longer before the end.

    Its last kernel before the last all-reduce takes ``late_us`` more, and rank 0 waits as long in
    that all-reduce; all that follows moves.
    """
    whole = json.loads(gzip.decompress(source.read_bytes()))
    for rank in (0, 1):
        trace = copy.deepcopy(whole)
        trace["distributedInfo"] |= {"rank": rank}
        events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
        kernels = sorted((e for e in events if e["cat"] == "kernel"), key=lambda e: e["ts"])
        last = [e for e in kernels if "AllReduce" in e["name"]][-1]
        before = max(
            (e for e in kernels if "nccl" not in e["name"] and e["ts"] < last["ts"]),
            key=lambda e: e["ts"] + e["dur"],
        )
        longer = before if rank == 1 else last
        moves = last["ts"] if rank == 1 else last["ts"] + last["dur"]
        for event in events:
            if event["ts"] >= moves:
                event["ts"] += late_us
            elif event is longer or (
                event["cat"] in ("user_annotation", "cpu_op") and event["ts"] + event["dur"] > moves
            ):
                event["dur"] += late_us
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))
    return folder


def test_a_real_device_trace_against_itself_has_no_straggler(
    shared: Shared, tmp_path: Path
) -> None:
    source = shared(f"{FOLDER}/hta_nccl_args_rank0of2_step4.json.gz")
    result = analyse(two_ranks(source, tmp_path, 0.0), "rank*.json")
    assert result.generic is not None
    assert result.replay_error.value == pytest.approx(0.0, abs=1e-9)
    assert result.S.value == pytest.approx(1.0, abs=0.005)
    assert result.reliable
    assert result.M_W.value is None


def test_a_device_that_computes_longer_is_named(shared: Shared, tmp_path: Path) -> None:
    source = shared(f"{FOLDER}/hta_nccl_args_rank0of2_step4.json.gz")
    result = analyse(two_ranks(source, tmp_path, LATE_US), "rank*.json")
    assert result.generic is not None
    assert result.slowest_ranks == (1,)
    excess = result.generic.excess()
    assert excess[1].value == pytest.approx(LATE_US / 1e6, rel=0.01)
    assert result.replay_error.value == pytest.approx(0.0, abs=1e-9)
    saved = fix_ranks(result.generic, [1]).recovered.s_per_step
    assert saved.value == pytest.approx(LATE_US / 1e6, rel=0.02)
    assert "one step only" in " ".join(result.S.warnings)


def test_it_comes_through_the_lake_and_the_command(
    shared: Shared, steptax: Callable[..., Any]
) -> None:
    files = sorted(shared(GLOO).glob("rank*.gz"))
    steptax("ingest", "kineto", *files, "--job", "gloo")
    data = steptax("whatif", "stragglers", "--job", "gloo", "--price", "2.0")
    assert data["slowest_ranks"] == [1]
    fixed = steptax("whatif", "fix", "--job", "gloo", "--ranks", "1")
    saved = fixed["recovered_s_per_step"]["value"]
    assert saved == pytest.approx(0.090, rel=0.03)
