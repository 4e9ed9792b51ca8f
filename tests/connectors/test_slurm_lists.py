"""Lists of Slurm: nodes and tasks by name, and the nodes of a job in its row."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.workspace import open_workspace
from steptax.connectors.base import Options
from steptax.connectors.registry import connector
from steptax.connectors.schedulers.hostlist import MOST_HOSTS, hosts_in, tasks_in
from tests.app.fleet_lake import charge, rows, us

HEAD = "JobID|Partition|State|Start|End|Elapsed|AllocTRES|NodeList\n"
HOUR = "2026-10-01T00:00:00|2026-10-01T01:00:00|01:00:00"


def jobs_of(path: Path, kind: str = "sacct") -> tuple[dict[str, dict[str, Any]], list[str]]:
    batches = list(connector(kind).read(path, Options()))
    found = {
        row["job_id"]: row
        for batch in batches
        if batch.table == "jobs"
        for row in batch.rows.to_pylist()
    }
    return found, [note for batch in batches for note in batch.notes]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-[01-03,07],cpu5", ("gpu-01", "gpu-02", "gpu-03", "gpu-07", "cpu5")),
        ("n[9-11]", ("n9", "n10", "n11")),
        ("r[1-2]n[01-02]-ib", ("r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib")),
        ("node1", ("node1",)),
        ("a,a,b", ("a", "b")),
        ("None assigned", ()),
        ("", ()),
        ("gpu-[01-0+", None),
        ("gpu-[01-03", None),
        ("gpu-[3-1]", None),
        ("gpu-[]", None),
        ("a,,b", None),
        ("a,", None),
        ("[0-999999999]", None),
        ("n[0-999]x[0-999]", None),
    ],
)
def test_lists_of_nodes(text: str, names: tuple[str, ...] | None) -> None:
    assert hosts_in(text) == names


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 50)), min_size=1, max_size=8))
def test_ranges_name_each_node_with_its_zeros(ranges: list[tuple[int, int]]) -> None:
    text = ",".join(f"{first:04}-{first + more:04}" for first, more in ranges)
    want = dict.fromkeys(
        f"n{i:04}" for first, more in ranges for i in range(first, first + more + 1)
    )
    assert hosts_in(f"n[{text}]") == tuple(want)


@given(st.text(alphabet="n0123456789[]-,:%_+", max_size=24))
def test_no_text_breaks_a_list(text: str) -> None:
    found = hosts_in(text)
    assert found is None or len(found) <= MOST_HOSTS
    assert tasks_in(text) is None or "_[" in text


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("201_[3-5,9]", ("201_3", "201_4", "201_5", "201_9")),
        ("201_[0-6:3%2]", ("201_0", "201_3", "201_6")),
        ("201_[0-999999]", None),
        ("201_[1,3,...]", None),
        ("201_3", None),
    ],
)
def test_tasks_of_an_array(text: str, tasks: tuple[str, ...] | None) -> None:
    assert tasks_in(text) == tasks


def test_the_nodes_of_a_job(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(
        HEAD
        + f"1|gpu|COMPLETED|{HOUR}|gres/gpu=16|gpu-[01-02]\n"
        + f"2+0|gpu|COMPLETED|{HOUR}|gres/gpu=8|gpu-03\n2+1|cpu|COMPLETED|{HOUR}|cpu=8|cpu5\n"
        + f"3+0|gpu|COMPLETED|{HOUR}|gres/gpu=8|gpu-04\n"
        + f"3+1|gpu|COMPLETED|{HOUR}|gres/gpu=2|gpu-05\n"
        + "4|gpu|NODE_FAIL|2026-10-01T00:00:00|2026-10-01T01:00:00|01:00:00|gres/gpu=8|gpu-06\n"
        + "4|gpu|COMPLETED|2026-10-01T02:00:00|2026-10-01T03:00:00|01:00:00|gres/gpu=8|gpu-07\n"
        + f"5|gpu|COMPLETED|{HOUR}|gres/gpu=8|gpu-[08-0+\n"
        + "6|gpu|PENDING|Unknown|Unknown|00:00:00||None assigned\n"
    )
    jobs, notes = jobs_of(path)
    assert {job: row["hosts"] for job, row in jobs.items()} == {
        "1": "gpu-01,gpu-02",
        "2": "gpu-03",
        "3": None,
        "4": None,
        "5": None,
        "6": None,
    }
    assert "1 job: its parts hold unlike numbers of devices per node: nodes unknown" in notes
    assert "1 job: ran on other nodes after a requeue, so no one list of them is true" in notes
    assert "1 job: the list of its nodes cannot be read, so they are unknown" in notes


def test_the_nodes_of_a_job_of_slurmrestd(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    job = {"job_id": 7, "job_state": ["RUNNING"], "start_time": 1_790_000_000}
    more = {"tres_alloc_str": "gres/gpu=16", "nodes": "gpu-[09-10]"}
    path.write_text(json.dumps({"jobs": [job | more, job | {"job_id": 8, "nodes": ""}]}))
    jobs, _ = jobs_of(path, "slurm-rest")
    assert {name: row["hosts"] for name, row in jobs.items()} == {
        "7": "gpu-09,gpu-10",
        "8": None,
    }


def test_a_bill_by_resource_meets_jobs_that_only_accounting_knows(tmp_path: Path) -> None:
    """Two nodes of 8 devices, an hour each: one job has both, another one half of the second."""
    path = tmp_path / "sacct.txt"
    path.write_text(
        HEAD
        + f"1|gpu|COMPLETED|{HOUR}|gres/gpu=16|gpu-[01-02]\n"
        + "2|gpu|COMPLETED|2026-10-01T01:00:00|2026-10-01T02:00:00|01:00:00|gres/gpu=4|gpu-02\n"
    )
    lake = Lake(tmp_path / "lake", create=True)
    ingest_file(lake, "sacct", path, Options())
    hour = us(2026, 10, 1), us(2026, 10, 1, 1)
    later = us(2026, 10, 1, 1), us(2026, 10, 1, 2)
    charges = [
        charge("1", *hour, "10.00", "vm/gpu-01"),
        charge("2", *hour, "14.00", "gpu-02"),
        charge("3", *later, "14.00", "gpu-02"),
    ]
    lake.append("charges", rows(charges), source="test")
    bill = fleet_bill(open_workspace(lake.root), by="job")
    costs = {group.name: group.cost for group in bill.groups}
    assert costs["1"] == Decimal("24.00")
    assert costs["2"] == Decimal("7.00")
    assert bill.reconciliation.unexplained_cost == 0
    assert bill.reconciliation.unallocated_cost == Decimal("7.00")


def test_ranks_that_name_their_nodes_win(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(HEAD + f"1|gpu|COMPLETED|{HOUR}|gres/gpu=2|gpu-[01-02]\n")
    lake = Lake(tmp_path / "lake", create=True)
    ingest_file(lake, "sacct", path, Options())
    ranks = [{"job_id": "1", "rank": rank, "host": "gpu-02"} for rank in (0, 1)]
    lake.append("ranks", rows(ranks), source="test")
    found = open_workspace(lake.root).engine.run("fleet_hosts").to_pylist()
    assert found == [{"job_id": "1", "host": "gpu-02", "rank_count": 2}]


def test_the_known_part_of_a_heterogeneous_job_counts(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(
        HEAD
        + f"202+0|gpu|COMPLETED|{HOUR}|gres/gpu=4|gpu-01\n202+1|gpu|COMPLETED|{HOUR}|cpu=8|gpu-02\n"
        + f"203+0|gpu|COMPLETED|{HOUR}|cpu=8|gpu-03\n203+1|gpu|COMPLETED|{HOUR}|cpu=8|gpu-04\n"
    )
    jobs, notes = jobs_of(path)
    known = {name: jobs["202"][name] for name in ("gpu_hours", "world_size", "hosts")}
    assert known == {"gpu_hours": 4.0, "world_size": 4, "hosts": "gpu-01"}
    assert "1 job: devices of a part are unknown: what is stored is of its other parts" in notes
    assert (jobs["203"]["gpu_hours"], jobs["203"]["world_size"]) == (None, None)


def test_elapsed_holds_and_a_span_that_differs_is_said(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    head = "JobID|State|Start|End|Elapsed|AllocTRES\n"
    day = "2026-03-29T"
    path.write_text(
        head
        + f"1|COMPLETED|{day}10:00:00|{day}20:00:00|00:30:00|gres/gpu=1\n"
        + f"2|COMPLETED|{day}02:30:00|{day}03:30:00|00:30:00|gres/gpu=1\n"
        + f"3|COMPLETED|{day}10:00:00|{day}11:00:01|01:00:00|gres/gpu=1\n"
    )
    options = Options(extra={"timezone": "Europe/Berlin"})
    batches = list(connector("sacct").read(path, options))
    rows_by_job = {r["job_id"]: r for b in batches for r in b.rows.to_pylist()}
    assert {job: r["gpu_hours"] for job, r in rows_by_job.items()} == {"1": 0.5, "2": 0.5, "3": 1.0}
    # The time for which the ledger takes the devices as held is the same.
    spans = {job: r["end_us"] - r["start_us"] for job, r in rows_by_job.items()}
    assert spans == {"1": 1_800_000_000, "2": 1_800_000_000, "3": 3_601_000_000}
    (said,) = [note for batch in batches for note in batch.notes if "Elapsed" in note]
    assert said.startswith("2 jobs: Elapsed differs from End - Start")
