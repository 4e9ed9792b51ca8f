"""Published traces of whole fleets, as the commands read and price them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steptax.app.lake import Lake
from steptax.app.views.workspace import open_workspace
from tests.app.fleet_outputs import Totals, check_everywhere

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
    steptax: Steptax, shared: Shared, expected: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    """Jeon et al. 2019; state and user are not published, so no job may pass for a failed one."""
    want = expected("philly_jobs")
    path = shared("fleet/philly_jobs.parquet")
    done = steptax("ingest", "jobs", path, "--time-unit", "s", "--map", "submit=timestamp")
    assert done["tables"]["jobs"] == {"accepted": want["rows"], "rejected": 0, "stored_before": 0}
    by_vc = {name: hours for name, (_, hours) in want["by_vc"].items()}
    totals = Totals(
        want["gpu_hours"],
        want["cost_usd_at_2"],
        "cluster",
        groups=by_vc,
        states={"unknown": want["gpu_hours"]},
        workbook=False,
    )
    check_everywhere(steptax, tmp_path, totals)
    fleet = steptax("fleet", "--price", "2")
    assert [row["state"] for row in fleet["states"]] == ["unknown"]
    months = {
        row["name"]: (row["jobs"], row["gpu_hours"]["value"]) for row in fleet["groups"]["month"]
    }
    assert set(months) == set(want["by_submit_month"])
    for month, (jobs, hours) in want["by_submit_month"].items():
        assert months[month] == (jobs, pytest.approx(hours, abs=CENT))
    billed = {name: hours for name, (_, hours) in months.items()}
    assert ledger(steptax, "month")[1] == pytest.approx(billed, rel=1e-12)
    sizes = [job["world_size"] for job in open_workspace(tmp_path / "lake").jobs()]
    assert sum(n == 1 for n in sizes) == want["jobs_1gpu"]
    assert sum(n >= 8 for n in sizes) == want["jobs_ge8"]
    assert max(sizes) == want["max_gpus"]


PODS = (
    *("--time-unit", "s", "--map", "job_id=name", "--map", "run_time=deletion_time-scheduled_time"),
    *("--map", "state=pod_phase", "--map", "team=qos", "--map", "gpu_model=gpu_spec"),
)


def test_pods_of_alibaba_with_their_parts_of_devices(
    steptax: Steptax, shared: Shared, expected: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    """Weng et al. 2023; whole devices in place of the parts would be 17.41 % more."""
    want = expected("alibaba2023_pods")
    done = steptax("ingest", "jobs", shared("fleet/alibaba2023_pods.csv"), *PODS)
    assert done["tables"]["jobs"] == {"accepted": want["rows"], "rejected": 0, "stored_before": 0}
    phases = {"pending": "Pending", "completed": "Succeeded", "failed": "Failed"}
    phases |= {"running": "Running"}
    phase_of = want["phase_rows_gpuh_fractional_gpuh_whole_medianruntime"]
    totals = Totals(
        want["gpu_hours_fractional"],
        want["cost_usd_at_2"],
        "team",
        groups={qos: n for qos, (_, n) in want["by_qos"].items()},
        states={state: phase_of[phase][1] for state, phase in phases.items()},
    )
    check_everywhere(steptax, tmp_path, totals)
    jobs = steptax("jobs")
    for state, phase in phases.items():
        own = [job["gpu_hours"]["value"] for job in jobs if job["state"] == state]
        assert len(own) == phase_of[phase][0]
        assert None not in own
        assert sum(own) == pytest.approx(phase_of[phase][1], abs=CENT)
    assert sum(job["world_size"] is None for job in jobs) == want["fractional_pods"]
    assert sum(job["world_size"] == 0 for job in jobs) == want["cpu_only_pods"]


def test_accounting_of_slurm(
    steptax: Steptax, shared: Shared, expected: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    want = expected("xdmod_sacct")
    done = steptax("ingest", "sacct", shared("fleet/xdmod_phillips_sacct.psv"))
    assert done["tables"]["jobs"] == {"accepted": want["rows"], "rejected": 0, "stored_before": 0}
    totals = Totals(
        want["gpu_hours"],
        2 * want["gpu_hours"],
        "month",
        groups=want["gpu_hours_apportioned_by_calendar_month"],
        states={s.lower(): hours for s, (*_, hours) in want["state_rows_cpuh_gpuh"].items()},
    )
    check_everywhere(steptax, tmp_path, totals)
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
    tmp_path: Path,
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
        totals = Totals(want[field], want["idle_cost_usd_at_2"], "team", groups=groups)
        check_everywhere(steptax, tmp_path, totals)


SUMMARY = ("--time-unit", "s", "--map", "job_id=id", "--map", "cluster=id")


def test_clusters_of_helios(
    steptax: Steptax, shared: Shared, expected: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    """Published sums of GPU-time by final state; the row that sums the clusters is no cluster."""
    want = expected("helios_cluster_summary")
    done = steptax("ingest", "jobs", shared("fleet/helios_cluster_summary.csv"), *SUMMARY)
    assert [(r["row"], r["field"]) for r in done["rejects"]] == [(6, "job_id")]
    whole = want.pop("total")
    by_cluster = {c: own["gpu_hours"] for c, own in want.items()}
    totals = Totals(whole["gpu_hours"], whole["cost_usd_at_2"], "cluster", groups=by_cluster)
    check_everywhere(steptax, tmp_path, totals)
    states = by_state(steptax)
    _no_count_of_jobs(steptax)
    for cluster, own in want.items():
        share = states[cluster, "failed"] / own["gpu_hours"]
        assert share == pytest.approx(own["failed_share"], abs=5e-5)


def _no_count_of_jobs(steptax: Steptax) -> None:
    """What sums many jobs is none: no output counts its rows, or rests a rate on their number."""
    fleet = steptax("fleet", "--price", "2")
    assert fleet["jobs"] is None
    for name in ("failed_jobs_ratio", "mtbf_gpu_hours"):
        assert fleet["metrics"][name]["value"] is None
        assert "sums many jobs" in fleet["metrics"][name]["reason"]
    assert fleet["metrics"]["failed_gpu_hours_ratio"]["value"] is not None
    rows = [*fleet["states"], *fleet["sizes"], *fleet["groups"]["cluster"], *fleet["losses"]]
    assert not any(row["jobs"] for row in rows if row["gpu_hours"]["value"])
    assert "jobs that failed (in 12 sums of many jobs)" in fleet["sentence"]
    review = steptax("executive", "--price", "2")
    assert "over 12 sums of many jobs" in review["sentence"]
    assert review["fix_first"]["what"] == "jobs that failed"
    assert all(row["jobs"] is None for rows in review["showback"].values() for row in rows)
    assert all(row["jobs"] is None for row in review["by_period"])
    ledger = steptax("ledger", "--by", "cluster", "--price", "2")
    assert ledger["sentence"].startswith("12 sums of many jobs, ")
    assert all(group["jobs"] is None for group in (*ledger["groups"], ledger["total"]))


def test_clusters_of_acme(
    steptax: Steptax, shared: Shared, expected: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    """Hu et al. 2024, with the other fleets that they compare; of PAI no GPU-time is published."""
    want = expected("acme_cluster_summary")
    steptax("ingest", "jobs", shared("fleet/acme_cluster_summary.csv"), *SUMMARY)
    totals = Totals(
        sum(own["total"] for own in want.values()),
        sum(own["cost_usd_at_2"] for own in want.values()),
        "cluster",
        groups={c: own["total"] for c, own in want.items()},
        tolerance=4 * CENT,  # four rounded figures are added up
    )
    check_everywhere(steptax, tmp_path, totals)
    # Chosen alone, a cluster shows its own states and what they cost.
    own = steptax("fleet", "--cluster", "Seren", "--price", "2")
    assert own["usd"]["value"] == pytest.approx(want["Seren"]["cost_usd_at_2"], abs=CENT)
    assert own["metrics"]["failed_gpu_hours_ratio"]["value"] == pytest.approx(
        want["Seren"]["failed_share"], abs=5e-5
    )
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


def test_nodes_of_two_fleets_of_alibaba(
    steptax: Steptax, shared: Shared, expected: Callable[[str], dict[str, Any]]
) -> None:
    """Inventories: what there is by device, though no job and no sample is known."""
    for name in ("alibaba2023_nodes", "alibaba2026_spot_nodes"):
        want = expected(name)
        done = steptax("ingest", "nodes", shared(f"fleet/{name}.csv"))
        assert done["tables"]["nodes"]["accepted"] == want["nodes"]
        listed = [
            row for row in steptax("fleet")["capacity"]["inventory"] if row["cluster"] == name
        ]
        assert sum(row["nodes"] for row in listed) == want["nodes"]
        assert sum(row["devices"] for row in listed) == want["gpus"]
        found = {row["gpu_model"] or "nan": [row["nodes"], row["devices"]] for row in listed}
        assert found == want["by_model"]


DUTY = (
    *("--time-unit", "s", "--map", "ts=timestamp_anon", "--map", "util_pct=value"),
    *("--map", "host=container_ip", "--map", "device=container_ip"),
)


def test_duty_of_the_devices_of_an_inference_fleet(
    steptax: Steptax,
    shared: Shared,
    expected: Callable[[str], dict[str, Any]],
    tmp_path: Path,
) -> None:
    """Alibaba 2026: percent by its name, one device per pod, mostly idle."""
    want = expected("alibaba2026_gpu_duty")
    path = shared("fleet/alibaba2026_gpu_duty.parquet")
    done = steptax("ingest", "device-samples", path, *DUTY)
    counts = {"accepted": want["rows"], "rejected": 0, "stored_before": want["dup_pod_ts"]}
    assert done["tables"]["device_samples"] == counts
    capacity = steptax("fleet")["capacity"]
    assert capacity["devices"] == want["pods"]
    assert capacity["utilisation"]["value"] == pytest.approx(want["mean_pct"] / 100, abs=5e-6)
    frame = Lake(tmp_path / "lake").read("device_samples").to_pandas()
    percent = frame["util_ratio"] * 100
    assert percent.median() == want["median_pct"]
    assert (percent == 0).mean() == pytest.approx(want["share_zero"], abs=5e-5)
    assert (percent >= 90).mean() == pytest.approx(want["share_ge_90"], abs=5e-5)
    assert percent.max() == pytest.approx(want["max_pct"], abs=5e-4)
    assert (frame.ts_us.max() - frame.ts_us.min()) / 3.6e9 == pytest.approx(
        want["span_h"], abs=0.05
    )
    steps_us = frame.sort_values("ts_us").groupby("host")["ts_us"].diff().dropna()
    assert steps_us.median() / 1e6 == want["median_step_s"]
    most = percent.groupby(frame["host"]).max()
    assert (most <= 5).sum() == want["pods_never_above_5pct"]


@pytest.mark.parametrize("gpu", ["v100", "rtx6000"])
def test_power_of_training_at_power_limits(
    steptax: Steptax,
    shared: Shared,
    expected: Callable[[str], dict[str, Any]],
    tmp_path: Path,
    gpu: str,
) -> None:
    """You et al. 2023 (Zeus): seconds and watts of an epoch, by power limit."""
    want = expected(f"zeus_{gpu}")
    mapping = ("--map", "test=network", "--map", "value=time_per_epoch", "--time-unit", "s")
    done = steptax("ingest", "measurements", shared(f"fleet/zeus_power_{gpu}.csv"), *mapping)
    counts = {"accepted": want["rows"], "rejected": 0, "stored_before": 0}
    assert done["tables"]["bench_results"] == counts
    frame = Lake(tmp_path / "lake").read("bench_results").to_pandas()
    assert set(frame["unit"]) == {"s"}
    assert set(frame["gpu_model"]) == {gpu}
    energy = (frame["value"] * frame["power_w"]).sum() / 1e6
    assert energy == pytest.approx(want["total_MJ"], abs=5e-4)
    low, high = want["power_w_min_max"]
    assert frame["power_w"].min() == pytest.approx(low, abs=5e-3)
    assert frame["power_w"].max() == pytest.approx(high, abs=5e-3)
    assert (frame["power_w"] > frame["power_limit_w"]).sum() == want["above_limit_rows"]
    assert sorted(set(frame["power_limit_w"])) == want["limits"]
    # What no column takes is kept, so that two rows of a sweep can be told apart.
    assert set(json.loads(frame["settings"][0])) == {"dataset", "optimizer"}


def test_spread_of_step_times_of_a_hundred_jobs(
    steptax: Steptax,
    shared: Shared,
    expected: Callable[[str], dict[str, Any]],
    tmp_path: Path,
) -> None:
    """Weng et al. 2022: a number per job and iteration, which is no step time of any rank."""
    want = expected("alibaba2020_cov")
    done = steptax("ingest", "scalars", shared("fleet/alibaba2020_minibatch_cov.parquet"))
    assert done["tables"]["printed_metrics"]["accepted"] == want["rows"]
    frame = Lake(tmp_path / "lake").read("printed_metrics").to_pandas()
    assert set(frame["name"]) == {"cov"}
    assert frame["value"].median() == pytest.approx(want["median_cov"], abs=5e-5)
    of_jobs = frame.groupby("job_id")["value"].median()
    assert len(of_jobs) == len(steptax("jobs")) == want["jobs"]
    assert (of_jobs > 0.2).sum() == want["jobs_median_over_0p2"]


def test_distributions_of_two_clusters_of_acme(
    steptax: Steptax,
    shared: Shared,
    expected: Callable[[str], dict[str, Any]],
    tmp_path: Path,
) -> None:
    """Hu et al. 2024 publish distributions, no samples: points of a curve, kept as measurements."""
    want = expected("acme_cdf_medians")
    mapping = ("--map", "run_id=source", "--map", "test=series", "--map", "size=cdf_pct")
    path = shared("fleet/acme_telemetry_cdfs.parquet")
    steptax("ingest", "measurements", path, *mapping)
    frame = Lake(tmp_path / "lake").read("bench_results").to_pandas()
    frame["below_pct"] = frame["size"].astype(float)
    found = {}
    for (source, series), own in frame.groupby(["run_id", "test"]):
        curve = own.sort_values(["below_pct", "value"])
        found[f"{source}/{series}"] = np.interp(50.0, curve["below_pct"], curve["value"])
    assert found == pytest.approx(want, abs=0.005)
