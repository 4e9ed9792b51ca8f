"""Cases from public problem reports: what a right product shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from steptax.app.lake import Lake
from steptax.app.views.job.view import job_view
from steptax.app.views.workspace import open_workspace

Shared = Callable[[str], Path]
Steptax = Callable[..., Any]


def expected(folder: Path) -> dict[str, Any]:
    text = (folder / "expected.md").read_text()
    loaded: dict[str, Any] = orjson.loads(text.split("```json")[1].split("```")[0])
    return loaded


def test_case_05_straggler_hidden_by_allreduce(shared: Shared, steptax: Steptax) -> None:
    folder = shared("cases/05-straggler-hidden-by-allreduce")
    want = expected(folder)["full"]
    steptax(
        "ingest",
        "steps",
        folder / "phases_full.csv",
        *("--map", "duration=forward_ms+backward_wall_ms"),
        *("--map", "compute=forward_ms+backward_compute_ms"),
        *("--map", "comm=allreduce_wait_ms"),
    )
    data = steptax("job", "phases_full", "--ideal", "median")
    assert data["card"]["culprit_rank"] == want["culprit_rank"]
    assert data["card"]["phase"] == "compute"
    excess_ms = data["metrics"]["excess_ms"]["value"]
    assert excess_ms == pytest.approx(want["excess_ms_over_median_of_others"], abs=0.1)
    # The report's share is that of the step which a repair to the median would return.
    waste = data["metrics"]["waste_ratio"]["value"]
    assert waste == pytest.approx(want["straggler_tax_share_of_step"], abs=2e-3)


def test_case_05_backward_compute_alone(shared: Shared, steptax: Steptax) -> None:
    folder = shared("cases/05-straggler-hidden-by-allreduce")
    want = expected(folder)["full"]["median_backward_compute_ms"]
    steptax(
        "ingest",
        "steps",
        folder / "phases_full.csv",
        *("--map", "duration=backward_wall_ms"),
        *("--map", "compute=backward_compute_ms"),
        *("--map", "comm=allreduce_wait_ms"),
    )
    ranks = steptax("job", "phases_full")["ranks"]
    for row in ranks:
        # Means here, medians there; the made-up noise is a fraction of a millisecond.
        assert row["work_ms"] == pytest.approx(want[str(row["rank"])], abs=0.3)


def test_case_05_wall_times_only_name_nobody(shared: Shared, steptax: Steptax) -> None:
    folder = shared("cases/05-straggler-hidden-by-allreduce")
    done = steptax(
        "ingest",
        "steps",
        folder / "phases_wall_only.csv",
        *("--map", "duration=forward_ms+backward_wall_ms"),
    )
    data = steptax("job", done["job_ids"][0], "--price", "2")
    assert data["card"]["verdict"] == "untellable"
    assert data["card"]["culprit_rank"] is expected(folder)["wall_only"]["culprit_rank"]
    assert data["ranks"] == []
    assert data["metrics"]["straggler_tax_ratio"]["value"] is None
    assert "compute_us" in data["metrics"]["straggler_tax_ratio"]["reason"]


def hours_by_job(steptax: Steptax) -> dict[str, float | None]:
    return {job["job_id"]: job["gpu_hours"]["value"] for job in steptax("jobs")}


def test_case_11_a_pipe_in_a_job_name(shared: Shared, steptax: Steptax) -> None:
    folder = shared("cases/11-sacct-pipe-in-jobname")
    want = expected(folder)
    steptax("ingest", "sacct", folder / "sacct.psv")
    assert hours_by_job(steptax) == pytest.approx(want["gpu_hours"])
    total = steptax("ledger", "--price", "2")["total"]
    assert total["gpu_hours"] == pytest.approx(want["total_gpu_hours"])
    assert total["usd"] == pytest.approx(2 * want["total_gpu_hours"])
    names = {job["job_id"]: job["name"] for job in steptax("jobs")}
    assert {job: names[job] for job in want["names"]} == want["names"]


def test_case_12_typed_and_plain_devices(shared: Shared, steptax: Steptax) -> None:
    folder = shared("cases/12-sacct-typed-gres")
    want = expected(folder)
    steptax("ingest", "sacct", folder / "sacct.psv")
    data = steptax("ledger", "--price", "2")
    assert data["total"]["gpu_hours"] == pytest.approx(want["gpu_hours_total"])
    hours = hours_by_job(steptax)
    assert sorted(job for job, value in hours.items() if value is None) == want["flag_unknown"]
    why = {one["job_id"]: one["reason"] for one in data["not_billed"]}
    held_none = {job for job, why_not in why.items() if why_not == "it held no devices"}
    assert sorted(why.keys() - held_none) == want["flag_unknown"]
    assert {job for job, gpus in want["gpus"].items() if not gpus} == why.keys()


def test_case_13_limits_and_states_that_are_no_numbers(shared: Shared, steptax: Steptax) -> None:
    folder = shared("cases/13-sacct-odd-values")
    want = expected(folder)
    done = steptax("ingest", "sacct", folder / "sacct.psv")
    assert done["tables"]["jobs"] == {"accepted": want["jobs"], "rejected": 0, "stored_before": 0}
    total = steptax("ledger", "--price", "2")["total"]
    assert total["gpu_hours"] == pytest.approx(want["total_gpu_hours"], abs=1e-3)
    # Start and end are whole seconds; the run time of one job has thousandths.
    assert hours_by_job(steptax) == pytest.approx(want["gpu_hours"], abs=0.857 / 3600 + 1e-4)


def test_case_14_a_job_over_a_month_end(shared: Shared, steptax: Steptax) -> None:
    folder = shared("cases/14-month-boundary-counted-twice")
    want = expected(folder)
    steptax("ingest", "jobs", folder / "jobs.csv")
    data = steptax("ledger", "--by", "month", "--price", "2")
    months = {group["name"]: group["gpu_hours"] for group in data["groups"]}
    assert months == pytest.approx(want["gpu_hours_by_month"], abs=1e-4)
    assert data["total"]["gpu_hours"] == pytest.approx(want["total"], abs=1e-4)
    assert data["total"]["usd"] == pytest.approx(want["cost_usd_at_2_total"], abs=0.005)


def test_case_15_types_that_flip_late(shared: Shared, steptax: Steptax) -> None:
    folder = shared("cases/15-csv-type-flips-late")
    want = expected(folder)
    done = steptax("ingest", "jobs", folder / "jobs.csv")
    assert done["tables"]["jobs"]["accepted"] == want["rows"]
    assert done["tables"]["jobs"]["rejected"] == 0
    ids = done["job_ids"]
    assert len(set(ids)) == want["distinct_job_ids"]
    assert sum("_" in job for job in ids) == want["job_ids_with_underscore"]
    assert max(ids, key=lambda job: int(job.split("_")[0])) == want["last_job_id"]
    jobs = steptax("jobs")
    assert sum(job["gpu_hours"]["value"] for job in jobs) == pytest.approx(want["gpu_hours"])
    stored = open_workspace().lake.read("jobs")
    assert sorted(set(stored["account"].to_pylist())) == want["distinct_accounts"]


def test_case_20_the_total_is_no_row_of_the_table(shared: Shared, steptax: Steptax) -> None:
    folder = shared("cases/20-table-with-total-row")
    want = expected(folder)
    steptax("ingest", "jobs", folder / "usage.csv")
    data = steptax("executive")
    found = {row["period"]: row["gpu_hours"] for row in data["by_period"]}
    assert found == want["by_month"]
    assert list(found) == want["sort_order_months"]
    assert data["metrics"]["gpu_hours"]["value"] == want["pivot_total"]


def test_case_21_a_spike_stays_visible_in_a_thinned_view(shared: Shared, tmp_path: Path) -> None:
    folder = shared("cases/21-dashboard-under-load")
    want = expected(folder)
    spec = orjson.loads((folder / "series_spec.json").read_bytes())
    ranks, steps = spec["ranks"], spec["steps"]
    generator = np.random.default_rng(spec["seed"])
    work_ms = generator.normal(spec["base_ms"], spec["noise_sd_ms"], (steps, ranks))
    for spike in spec["spikes"]:
        work_ms[spike["step"], spike["rank"]] = spike["ms"]
    assert work_ms.size == want["points_total"]
    lake = Lake(tmp_path / "lake", create=True)
    lake.append(
        "steps",
        pa.table(
            {
                "job_id": pa.repeat(pa.scalar("big"), work_ms.size),
                "attempt": pa.repeat(pa.scalar(0, pa.int32()), work_ms.size),
                "step": np.repeat(np.arange(steps), ranks),
                "rank": np.tile(np.arange(ranks, dtype=np.int32), steps),
                "duration_us": (work_ms * 1000).astype(np.int64).ravel(),
            }
        ),
        source="made",
    )
    view = job_view(open_workspace(lake.root), "big", price=None, last_steps=None)
    assert len(view.series.steps) <= want["points_per_chart_max"]
    assert view.series.duration_ms.max() == pytest.approx(want["spike_visible_ms"])
    place = int(np.argmax(view.series.duration_ms))
    assert view.series.slowest_rank[place] == want["spike_rank"]
    heat = view.heat
    assert heat.excess_ms.size <= 256 * 500
    row, column = np.unravel_index(np.nanargmax(heat.excess_ms), heat.excess_ms.shape)
    assert heat.rank_edges[row] <= want["spike_rank"] < heat.rank_edges[row + 1]
    assert heat.step_edges[column] <= spec["spikes"][0]["step"] < heat.step_edges[column + 1]
