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
from steptax.app.views.job import job_view
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
