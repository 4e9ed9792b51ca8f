"""Published traces of whole fleets, as the commands read and price them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Shared = Callable[[str], Path]
Steptax = Callable[..., Any]
CENT = 0.01


@pytest.fixture
def expected(shared: Shared) -> Callable[[str], dict[str, Any]]:
    """What was computed of a file independently, by the name of its section."""
    sections = re.split(r"^## ", shared("fleet/EXPECTED.md").read_text(), flags=re.MULTILINE)

    def find(name: str) -> dict[str, Any]:
        (section,) = [own for own in sections if own.split("\n", 1)[0].strip() == name]
        block = re.search(r"```json\n(.*?)```", section, re.DOTALL)
        assert block is not None
        found: dict[str, Any] = json.loads(block[1])
        return found

    return find


def ledger(steptax: Steptax, by: str = "cluster") -> tuple[dict[str, Any], dict[str, float]]:
    """The total at $2.00 an hour, and GPU-hours by group."""
    data = steptax("ledger", "--by", by, "--price", "2")
    return data["total"], {group["name"]: group["gpu_hours"] for group in data["groups"]}


def by_state(steptax: Steptax) -> Counter[tuple[str, str | None]]:
    """GPU-hours by cluster and state."""
    found: Counter[tuple[str, str | None]] = Counter()
    for job in steptax("jobs"):
        if job["gpu_hours"]["value"] is not None:
            found[job["job_id"].split(":")[0], job["state"]] += job["gpu_hours"]["value"]
    return found


def test_jobs_of_philly(
    steptax: Steptax, shared: Shared, expected: Callable[[str], dict[str, Any]]
) -> None:
    """Jeon et al. 2019; state and user are not published, so no job may pass for a failed one."""
    want = expected("philly_jobs")
    path = shared("fleet/philly_jobs.parquet")
    done = steptax("ingest", "jobs", path, "--time-unit", "s", "--map", "submit=timestamp")
    assert done["tables"]["jobs"] == {"accepted": want["rows"], "rejected": 0, "stored_before": 0}
    data = steptax("executive", "--price", "2")
    metrics = data["metrics"]
    assert metrics["gpu_hours"]["value"] == pytest.approx(want["gpu_hours"], abs=CENT)
    assert metrics["spend_usd"]["value"] == pytest.approx(want["cost_usd_at_2"], abs=CENT)
    assert {job["state"] for job in data["jobs"]} == {"unknown"}
    sizes = [job["world_size"] for job in data["jobs"]]
    assert sum(n == 1 for n in sizes) == want["jobs_1gpu"]
    assert sum(n >= 8 for n in sizes) == want["jobs_ge8"]
    assert max(sizes) == want["max_gpus"]


PODS = (
    *("--time-unit", "s", "--map", "job_id=name", "--map", "run_time=deletion_time-scheduled_time"),
    *("--map", "state=pod_phase", "--map", "team=qos", "--map", "gpu_model=gpu_spec"),
)


def test_pods_of_alibaba_with_their_parts_of_devices(
    steptax: Steptax, shared: Shared, expected: Callable[[str], dict[str, Any]]
) -> None:
    """Weng et al. 2023; whole devices in place of the parts would be 17.41 % more."""
    want = expected("alibaba2023_pods")
    done = steptax("ingest", "jobs", shared("fleet/alibaba2023_pods.csv"), *PODS)
    assert done["tables"]["jobs"] == {"accepted": want["rows"], "rejected": 0, "stored_before": 0}
    total, groups = ledger(steptax, "team")
    assert total["gpu_hours"] == pytest.approx(want["gpu_hours_fractional"], abs=CENT)
    assert total["usd"] == pytest.approx(want["cost_usd_at_2"], abs=CENT)
    assert groups == pytest.approx({qos: n for qos, (_, n) in want["by_qos"].items()}, abs=CENT)
    jobs = steptax("jobs")
    phases = {"pending": "Pending", "completed": "Succeeded", "failed": "Failed"}
    phases |= {"running": "Running"}
    phase_of = want["phase_rows_gpuh_fractional_gpuh_whole_medianruntime"]
    for state, phase in phases.items():
        own = [job["gpu_hours"]["value"] for job in jobs if job["state"] == state]
        assert len(own) == phase_of[phase][0]
        assert None not in own
        assert sum(own) == pytest.approx(phase_of[phase][1], abs=CENT)
    assert sum(job["world_size"] is None for job in jobs) == want["fractional_pods"]
    assert sum(job["world_size"] == 0 for job in jobs) == want["cpu_only_pods"]


def test_accounting_of_slurm(
    steptax: Steptax, shared: Shared, expected: Callable[[str], dict[str, Any]]
) -> None:
    want = expected("xdmod_sacct")
    done = steptax("ingest", "sacct", shared("fleet/xdmod_phillips_sacct.psv"))
    assert done["tables"]["jobs"] == {"accepted": want["rows"], "rejected": 0, "stored_before": 0}
    total, months = ledger(steptax, "month")
    assert total["gpu_hours"] == pytest.approx(want["gpu_hours"], abs=CENT)
    assert months == pytest.approx(want["gpu_hours_apportioned_by_calendar_month"], abs=CENT)
    states = Counter(job["state"].upper() for job in steptax("jobs"))
    assert states == {state: rows for state, (rows, *_) in want["state_rows_cpuh_gpuh"].items()}


@pytest.mark.parametrize(
    ("column", "field"),
    [
        ("running_gpu_num", "running_gpu_hours"),
        ("idle_gpu_num", "idle_gpu_hours"),
    ],
)
def test_hours_of_the_clusters_of_helios(
    steptax: Steptax,
    shared: Shared,
    expected: Callable[[str], dict[str, Any]],
    column: str,
    field: str,
) -> None:
    """Hu et al. 2021; means of an hour are no whole devices."""
    want = expected("helios_earth_vc_hourly")
    path = shared("fleet/helios_earth_vc_hourly.parquet")
    mapping = ("--map", "team=vc", "--map", f"devices={column}", "--map", "run_time=minutes")
    done = steptax("ingest", "jobs", path, *mapping)
    assert done["tables"]["jobs"]["accepted"] == want["rows"]
    total, groups = ledger(steptax, "team")
    assert total["gpu_hours"] == pytest.approx(want[field], abs=CENT)
    assert set(groups) <= set(want["vcs"])
    if field == "idle_gpu_hours":
        assert total["usd"] == pytest.approx(want["idle_cost_usd_at_2"], abs=CENT)


SUMMARY = ("--time-unit", "s", "--map", "job_id=id", "--map", "cluster=id")


def test_clusters_of_helios(
    steptax: Steptax, shared: Shared, expected: Callable[[str], dict[str, Any]]
) -> None:
    """Published sums of GPU-time by final state; the row that sums the clusters is no cluster."""
    want = expected("helios_cluster_summary")
    done = steptax("ingest", "jobs", shared("fleet/helios_cluster_summary.csv"), *SUMMARY)
    assert [(r["row"], r["field"]) for r in done["rejects"]] == [(6, "job_id")]
    total, groups = ledger(steptax)
    whole = want.pop("total")
    assert total["gpu_hours"] == pytest.approx(whole["gpu_hours"], abs=CENT)
    assert total["usd"] == pytest.approx(whole["cost_usd_at_2"], abs=CENT)
    assert groups == pytest.approx({c: own["gpu_hours"] for c, own in want.items()}, abs=CENT)
    states = by_state(steptax)
    for cluster, own in want.items():
        share = states[cluster, "failed"] / own["gpu_hours"]
        assert share == pytest.approx(own["failed_share"], abs=5e-5)


def test_clusters_of_acme(
    steptax: Steptax, shared: Shared, expected: Callable[[str], dict[str, Any]]
) -> None:
    """Hu et al. 2024, with the other fleets that they compare; of PAI no GPU-time is published."""
    want = expected("acme_cluster_summary")
    steptax("ingest", "jobs", shared("fleet/acme_cluster_summary.csv"), *SUMMARY)
    total, groups = ledger(steptax)
    assert groups == pytest.approx({c: own["total"] for c, own in want.items()}, abs=CENT)
    dollars = sum(own["cost_usd_at_2"] for own in want.values())
    assert total["usd"] == pytest.approx(dollars, abs=5 * CENT)
    states = by_state(steptax)
    for cluster, own in want.items():
        for state in ("completed", "cancelled", "failed"):
            assert states[cluster, state] == pytest.approx(own[f"gpu_hours_{state}"], abs=CENT)
    unknown = [job["job_id"] for job in steptax("jobs") if job["gpu_hours"]["value"] is None]
    assert sorted(unknown) == ["PAI:cancelled", "PAI:completed", "PAI:failed"]


def test_iterations_of_four_devices(
    steptax: Steptax, shared: Shared, expected: Callable[[str], dict[str, Any]]
) -> None:
    want = expected("megatron_4gpu")
    path = shared("fleet/megatron_4gpu_iterations.log")
    done = steptax("ingest", "megatron", path, "--world-size", "4")
    assert done["tables"]["steps"]["accepted"] == want["log_iterations"]
