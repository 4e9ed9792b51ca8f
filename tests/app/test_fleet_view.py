"""The fleet view and ``steptax fleet`` on made-up and on published fleets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from steptax.app.charts.fleet_view_tables import capacity_table
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.fleet.facts import fleet_facts, slow_facts
from steptax.app.views.fleet.models import FleetView, Places
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.review.budget import set_budget
from steptax.app.views.workspace import Workspace, open_workspace
from tests.app.fleet_lake import HOUR, RANKS, S, charge, event, job, lake_of, on, steps, us

Steptax = Callable[..., Any]
Shared = Callable[[str], Path]
T0 = us(2026, 11, 1)
TWO = Decimal(2)


def places(view: FleetView, kind: str, what: str) -> Places:
    (found,) = [one for one in view.places if (one.kind, one.what) == (kind, what)]
    return found


def fleet_with_a_bad_host(root: Path) -> Workspace:
    """Forty jobs on ten hosts; eight of the nine failures were on n3."""
    jobs, ranks = [], []
    for i in range(40):
        failed = i % 10 == 3 or i % 10 == 7
        state = "failed" if (failed and i % 10 == 3) or i == 7 else "completed"
        jobs.append(job(f"j{i}", T0 + i * HOUR, T0 + (i + 2) * HOUR, state=state))
        ranks += on(f"j{i}", f"n{i % 10}")
    for i in range(4):
        jobs.append(job(f"x{i}", T0 + i * HOUR, T0 + (i + 2) * HOUR, state="failed"))
        ranks += on(f"x{i}", "n3")
    return lake_of(root, jobs=jobs, ranks=ranks)


def test_the_first_sentence_says_what_breaks_what_it_costs_and_where(tmp_path: Path) -> None:
    view = fleet_view(fleet_with_a_bad_host(tmp_path), price=TWO)
    assert view.sentence.startswith(
        "What breaks most: jobs that failed (9 of 44 jobs), at 72.0 GPU-hours = $144.00, "
        "20.5 % of all 352 GPU-hours."
    )
    assert "Look first at host n3: 8 failures where chance gives 1.64." in view.sentence
    assert view.metrics["failed_jobs_ratio"].value == pytest.approx(9 / 44)
    assert view.metrics["failed_gpu_hours_ratio"].value == pytest.approx(9 / 44)
    assert view.metrics["mtbf_gpu_hours"].value == pytest.approx(352 / 9)
    rows = places(view, "host", "failures").rows
    assert [(row.name, row.count, row.is_named) for row in rows] == [
        ("n3", 8, True),
        ("n7", 1, False),
    ]
    assert places(view, "host", "failures").places == 10
    reason = places(view, "device", "failures").reason
    assert reason == "no source tells on which devices jobs ran (ranks with a device)"


def test_an_unknown_state_stays_unknown(tmp_path: Path) -> None:
    known = [job("a", T0, T0 + HOUR, state="failed"), job("b", T0, T0 + HOUR)]
    unknown = [job("c", T0, T0 + 2 * HOUR, state=None)]
    view = fleet_view(lake_of(tmp_path / "some", jobs=known + unknown), price=TWO)
    by_jobs, by_hours = (
        view.metrics[name] for name in ("failed_jobs_ratio", "failed_gpu_hours_ratio")
    )
    assert (by_jobs.value, by_jobs.low, by_jobs.high) == (0.5, 1 / 3, 2 / 3)
    assert (by_hours.value, by_hours.low, by_hours.high) == (0.5, 0.25, 0.75)
    assert {row.state: row.gpu_hours.value for row in view.states} == {
        "unknown": 8.0,
        "failed": 4.0,
        "completed": 4.0,
    }
    assert (view.rate.jobs, view.rate.left_out) == (2, 1)
    assert "for the state of 1 job is unknown" in view.losses[0].note
    none = fleet_view(lake_of(tmp_path / "none", jobs=unknown), price=TWO)
    assert none.sentence.startswith("Which jobs failed is unknown")
    assert "$16.00" in none.sentence
    assert none.losses[0].gpu_hours.value is None
    assert none.metrics["mtbf_gpu_hours"].value is None


def test_a_failure_that_names_its_rank_is_that_host_s_alone(tmp_path: Path) -> None:
    jobs = [job("a", T0, T0 + HOUR, state="completed")]
    told = [event("a", "failure", T0 + 600 * S) | {"ranks": "3"}, event("a", "evict", T0 + S)]
    ranks = [row | {"gpu_uuid": f"GPU-{row['rank']}"} for row in on("a", "n1", "n2")]
    ws = lake_of(tmp_path, jobs=jobs, ranks=ranks, events=told)
    view = fleet_view(ws)
    rows = places(view, "host", "failures").rows
    assert [(row.name, row.count, row.expected) for row in rows] == [("n2", 1, 0.5)]
    devices = places(view, "device", "failures")
    assert [(row.name, row.count, row.expected) for row in devices.rows] == [("GPU-3", 1, 0.25)]
    assert devices.places == RANKS
    assert not rows[0].is_named
    assert view.rate.failures == 1
    assert any("1 evictions" in text for text in view.warnings)


def slow_fleet(root: Path) -> Workspace:
    jobs, ranks, rows, told = [], [], [], []
    for i in range(4):
        name, start = f"s{i}", T0 + i * 4 * HOUR
        jobs.append(job(name, start, start + 70 * 60 * S))
        ranks += on(name, "bad" if i < 2 else f"ok{i}")
        told += [event(name, "first_step", start + 10 * 60 * S)]
        slow = 12 * S if i < 2 else 0
        rows += steps(name, start + 10 * 60 * S, 60, slow_us=slow)
    return lake_of(root, jobs=jobs, ranks=ranks, events=told, steps=rows)


def test_lost_work_of_jobs_without_steps_is_unknown_and_not_nothing(tmp_path: Path) -> None:
    told = [job("told", T0, T0 + HOUR)]
    silent = job("silent", T0, T0 + HOUR)

    def lost(name: str, jobs: list[dict[str, Any]]) -> Any:
        ws = lake_of(tmp_path / name, jobs=jobs, steps=steps("told", T0, 30))
        (row,) = [r for r in fleet_view(ws, price=TWO).losses if r.what.startswith("work lost")]
        return row

    assert lost("all", told).gpu_hours.value == 0
    part = lost("part", [*told, silent])
    assert (part.gpu_hours.value, part.usd.value, part.jobs) == (None, None, None)
    assert part.gpu_hours.reason == "none in 1 job with steps; of 1 job it is unknown"


def test_slow_jobs_are_counted_once_and_by_their_hours(tmp_path: Path) -> None:
    ws = slow_fleet(tmp_path)
    view = fleet_view(ws, price=TWO)
    every = view.fail_slow[-1]
    assert (every.size, every.jobs, every.affected, every.episodes) == ("all", 4, 2, 2)
    assert view.metrics["fail_slow_jobs_ratio"].value == 0.5
    assert every.median_s.value == pytest.approx(3600)
    assert view.metrics["slow_jobs_ratio"].value == pytest.approx(0.5)
    assert view.waste.jobs == 4
    assert view.waste.quantiles[1][1].value == pytest.approx(0.15)
    rows = places(view, "host", "fail-slow").rows
    assert [(row.name, row.count, row.expected) for row in rows] == [("bad", 2, pytest.approx(1))]
    assert view.metrics["ettr_ratio"].value == pytest.approx(60 / 70)
    assert [value for _, value in view.ettr_values] == pytest.approx([60 / 70] * 4)
    costs = {row.what: row.gpu_hours.value for row in view.losses}
    assert costs["waiting for the slowest rank"] == pytest.approx(2 * 4 * 0.15)
    # The second look answers from what was kept, and says the same.
    assert slow_facts(ws, ws.jobs()) == list(fleet_facts(ws).slow)


def test_slow_stretches_that_come_and_go_last_as_long_as_they_take(tmp_path: Path) -> None:
    """Eight times five steps of 150 s, each after twenty-five of 60 s: 6,000 s, not the window."""
    start, rows = T0, []
    for block in range(8):
        rows += steps("e", start, 25, first=30 * block)
        start += 25 * 60 * S
        rows += steps("e", start, 5, first=30 * block + 25, length=150 * S)
        start += 5 * 150 * S
    ws = lake_of(tmp_path, jobs=[job("e", T0, start)], ranks=on("e", "n1"), steps=rows)
    episodes = slow_facts(ws, ws.jobs())[0].episodes
    assert [one.duration_s for one in episodes] == [pytest.approx(6000, rel=0.05)] * len(episodes)
    assert episodes[0].lost_gpu_hours == pytest.approx(RANKS * 40 * 0.6 * 90 / 3600, rel=0.05)


def test_unallocated_capacity_is_known_with_a_bill_only(tmp_path: Path) -> None:
    jobs = [job("a", T0, T0 + HOUR, state="failed")]
    without = fleet_view(lake_of(tmp_path / "a", jobs=jobs, ranks=on("a", "n1")), price=TWO)
    assert without.metrics["unallocated_ratio"].value is None
    assert "no bill is connected" in (without.metrics["unallocated_ratio"].reason or "")
    paid = [charge("1", T0, T0 + 4 * HOUR, "32", "n1")]
    view = fleet_view(lake_of(tmp_path / "b", jobs=jobs, ranks=on("a", "n1"), charges=paid))
    assert view.metrics["unallocated_ratio"].value == pytest.approx(0.75)
    assert view.capacity.unallocated_gpu_hours.value == pytest.approx(12.0)
    assert view.capacity.unallocated_usd.value == pytest.approx(24.0)
    # It is the largest loss, and nothing that broke: what the sentence names comes first.
    assert view.losses[0].what == "jobs that failed"
    assert view.losses[-1].what == "devices that nobody held"
    assert (
        "Devices that nobody held cost more: 12.0 GPU-hours = $24.00, 75.0 % of all paid."
        in view.sentence
    )
    assert "What breaks most: jobs that failed" in view.sentence


def test_the_ettr_of_a_fleet_is_that_of_its_bill(tmp_path: Path) -> None:
    """Of half of the time nothing but the hours is known: it may have been in steps or not."""
    jobs = [job("a", T0, T0 + 2 * HOUR), job("b", T0, T0 + HOUR)]
    ws = lake_of(tmp_path, jobs=jobs, ranks=on("a", "n1"), steps=steps("a", T0 + HOUR // 2, 90))
    view, whole = fleet_view(ws, price=TWO), fleet_bill(ws, by="team", price=TWO).total
    assert whole is not None
    ettr, same = view.metrics["ettr_ratio"], whole.metrics["ettr_ratio"]
    assert (ettr.value, ettr.low, ettr.high) == pytest.approx((1.5 / 3, 1.5 / 3, 2.5 / 3))
    assert (ettr.value, ettr.low, ettr.high) == (same.value, same.low, same.high)
    assert view.bases["ettr_ratio"] == "of all 2 jobs, of which 1 tell it"


def test_an_inventory_says_what_there_is(tmp_path: Path) -> None:
    listed = [
        {"cluster": "east", "host": "n1", "gpu_model": "H100", "gpus": 8},
        {"cluster": "east", "host": "n2", "gpu_model": "H100", "gpus": 4},
        {"cluster": "east", "host": "login", "gpus": 0},
        {"cluster": "west", "host": "n1", "gpu_model": "L4", "gpus": 2},
    ]
    ws = lake_of(tmp_path, jobs=[job("a", T0, T0 + HOUR)], nodes=listed)
    # Repaired: it is listed again, and the newest row of a node holds.
    ws.lake.append("nodes", pa.Table.from_pylist([listed[1] | {"gpus": 8}]), source="again")
    inventory = fleet_view(ws).capacity.inventory
    found = [(row.cluster, row.gpu_model, row.nodes, row.devices) for row in inventory]
    assert found == [
        ("east", "H100", 2, 16),
        ("east", None, 1, 0),
        ("west", "L4", 1, 2),
    ]
    lines = {row[0]: (row[2], row[4]) for row in capacity_table(fleet_view(ws).capacity).rows}
    assert lines["listed in east: H100"] == (16, "on 2 nodes")
    assert lines["listed in east: no device, or not told which"] == (0, "on 1 node")


def test_xids_are_held_against_what_devices_of_a_model_have(tmp_path: Path) -> None:
    samples = [
        {
            "host": f"n{host}",
            "gpu_uuid": f"GPU-{host}-{gpu}",
            "ts_us": T0 + day * 24 * HOUR,
            "gpu_model": "H",
            "util_ratio": 0.0 if gpu < 2 else 0.9,
            "xid": 79 if host == 4 and day else 0,
        }
        for host in range(20)
        for gpu in range(8)
        for day in range(3)
    ]
    jobs = [job("a", T0, T0 + HOUR)]
    view = fleet_view(lake_of(tmp_path, jobs=jobs, device_samples=samples))
    (row,) = places(view, "host", "Xids").rows
    assert (row.name, row.count, row.is_named) == ("n4", 8, True)
    assert row.expected == pytest.approx(8 / 20)
    assert row.detail == "Xid 79 on 8 devices (reboot)"
    assert view.capacity.idle.value == pytest.approx(0.25)
    assert (view.capacity.devices, view.capacity.hosts) == (160, 20)
    assert "Look first at host n4: 8 Xids" in view.sentence


def test_an_error_budget_burns_over_two_windows(tmp_path: Path) -> None:
    ws = slow_fleet(tmp_path)
    assert fleet_view(ws, price=TWO).burn == ()
    for scope, period in (("all", "2026-11"), ("all", "2026"), ("team:none", "2026-11")):
        set_budget(
            ws,
            scope=scope,
            period=period,
            budget_usd=None,
            goodput_slo_ratio=0.95,
            set_by="ada",
        )
    now = int(datetime(2026, 11, 2, 12, tzinfo=UTC).timestamp() * 1e6)
    view = fleet_view(ws, price=TWO, now_us=now)
    (row,) = view.burn
    assert (row.scope, row.period, row.goodput_slo_ratio) == ("all", "2026-11", 0.95)
    assert row.goodput.value == pytest.approx(60 / 70)
    # All of what was lost lies before the newest hour.
    assert [one.rate.value for one in row.burns] == pytest.approx([0.0, (10 / 70) / 0.05])
    assert [one.window.hours for one in row.burns] == [1, 6]
    assert row.week_burn.value == pytest.approx((10 / 70) / 0.05)
    assert "the error budget of all in 2026-11 will not last" in view.warnings


def test_an_empty_lake_and_jobs_without_any_time(tmp_path: Path) -> None:
    assert fleet_view(lake_of(tmp_path / "none")).sentence == "There are no jobs yet."
    ws = lake_of(tmp_path / "some", jobs=[job("a", None, None, state="failed", world_size=None)])
    view = fleet_view(ws)
    assert view.metrics["failed_jobs_ratio"].value == 1.0
    assert view.metrics["failed_gpu_hours_ratio"].value is None
    assert "1 of 1 job failed" in view.sentence


def test_the_command_prints_what_the_view_says(steptax: Steptax, tmp_path: Path) -> None:
    fleet_with_a_bad_host(tmp_path / "lake")
    data = steptax("fleet", "--price", "2")
    view = fleet_view(open_workspace(tmp_path / "lake"), price=TWO)
    assert data["sentence"] == view.sentence
    assert data["metrics"]["failed_jobs_ratio"]["value"] == pytest.approx(9 / 44)
    assert data["losses"][0]["usd"]["value"] == pytest.approx(144)
    assert data["places"][0]["rows"][0]["name"] == "n3"
    assert data["rate"]["sizes"][0]["failures"] == 9
    assert data["burn_reason"].startswith("no objective is set")


def test_people_read_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from steptax.app.cli import main

    fleet_with_a_bad_host(tmp_path)
    monkeypatch.setattr("sys.argv", ["steptax", "fleet", "--price", "2", "--lake", str(tmp_path)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 0
    said = capsys.readouterr().out
    for text in ("What breaks most: jobs that failed", "n3 ", "goes with 1/N", "no bill is"):
        assert text in said


PODS = (
    *("--time-unit", "s", "--map", "job_id=name", "--map", "run_time=deletion_time-scheduled_time"),
    *("--map", "state=pod_phase", "--map", "team=qos", "--map", "gpu_model=gpu_spec"),
)


def test_published_fleets(steptax: Steptax, shared: Shared) -> None:
    """Weng et al. 2023: most pods still ran when it was written down."""
    steptax("ingest", "jobs", shared("fleet/alibaba2023_pods.csv"), *PODS)
    data = steptax("fleet", "--price", "2")
    assert data["jobs"] == 4076
    jobs = steptax("jobs")
    for row in data["states"]:
        own = [j["gpu_hours"]["value"] for j in jobs if j["state"] == row["state"]]
        assert row["jobs"] == len(own)
        assert row["gpu_hours"]["value"] == pytest.approx(sum(own), abs=0.01)
    assert data["metrics"]["failed_jobs_ratio"]["value"] == pytest.approx(1199 / (1199 + 95))
    assert sum(row["jobs"] for row in data["sizes"]) == 4076


def test_a_published_fleet_without_states(steptax: Steptax, shared: Shared) -> None:
    """Jeon et al. 2019."""
    path = shared("fleet/philly_jobs.parquet")
    steptax("ingest", "jobs", path, "--time-unit", "s", "--map", "submit=timestamp")
    data = steptax("fleet", "--price", "2")
    assert data["gpu_hours"]["value"] == pytest.approx(642_409.31, abs=0.01)
    assert data["usd"]["value"] == pytest.approx(1_284_818.63, abs=0.02)
    (row,) = data["states"]
    assert (row["state"], row["jobs"]) == ("unknown", 52_849)
    assert data["metrics"]["failed_jobs_ratio"]["value"] is None
    assert data["sentence"].startswith("Which jobs failed is unknown")
