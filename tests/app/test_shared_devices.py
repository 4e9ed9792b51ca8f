"""Devices that two jobs name: every GPU-second is in the bill of one of them."""

from __future__ import annotations

import tempfile
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.fleet.bill_models import LEVELS, FleetBill
from steptax.app.views.job.view import job_view
from steptax.app.views.review.executive import executive_view
from steptax.app.views.workspace import Workspace
from tests.app.fleet_lake import HOUR, RANKS, S, charge, event, job, lake_of, rows, steps, us

START = us(2026, 3, 1)
PRICE = Decimal(2)


def devices(
    job_id: str, names: list[str], host: str | None = "node", **more: Any
) -> list[dict[str, Any]]:
    """Rows of the ranks table: rank r on the r-th of these devices."""
    return [
        {"job_id": job_id, "rank": r, "host": host, "local_rank": r, "gpu_uuid": name} | more
        for r, name in enumerate(names)
    ]


def uuids(first: int = 0) -> list[str]:
    return [f"GPU-{k:08x}-aaaa-bbbb" for k in range(first, first + RANKS)]


def hours(bill: FleetBill) -> dict[str, float]:
    return {group.name: group.gpu_hours for group in bill.groups}


def total(bill: FleetBill) -> float:
    assert bill.total is not None
    return bill.total.gpu_hours


def warned(bill: FleetBill, *words: str) -> bool:
    return any(all(word in text for word in words) for text in bill.warnings)


@pytest.fixture
def two(tmp_path: Path) -> Workspace:
    """On the four devices of a node: one job for three hours, another from the third to the
    fourth one."""
    return lake_of(
        tmp_path / "lake",
        jobs=[
            job("a", START, START + 3 * HOUR, team="red"),
            job("b", START + 2 * HOUR, START + 4 * HOUR, team="blue"),
        ],
        ranks=devices("a", uuids()) + devices("b", uuids()),
    )


@pytest.mark.parametrize("by", LEVELS)
def test_devices_that_two_jobs_hold_at_once_are_paid_once(two: Workspace, by: str) -> None:
    bill = fleet_bill(two, by=by, price=PRICE)
    assert total(bill) == 4 * RANKS
    assert bill.total is not None
    assert bill.total.cost == 2 * 4 * RANKS
    assert warned(bill, "4.00 GPU-hours", "of b and not of a")


def test_the_one_that_got_them_last_has_them_and_the_other_says_so(two: Workspace) -> None:
    assert hours(fleet_bill(two, by="job")) == {"a": 2 * RANKS, "b": 2 * RANKS}
    alone = fleet_bill(two, by="job", job_ids=["a"])
    assert hours(alone) == {"a": 2 * RANKS}
    assert warned(alone, "1 shared", "steptax job ID")
    assert hours(fleet_bill(two, by="job", job_ids=["b"])) == {"b": 2 * RANKS}


def test_every_view_has_the_same_hours_of_a_job_with_steps(tmp_path: Path) -> None:
    """The bill, the job, the list of jobs and the review."""
    ws = lake_of(
        tmp_path / "lake",
        jobs=[
            job("a", START, START + 3 * HOUR),
            job("b", START + 2 * HOUR, START + 4 * HOUR),
        ],
        ranks=devices("a", uuids()) + devices("b", uuids(2)),
        steps=steps("a", START, 170) + steps("b", START + 2 * HOUR, 100),
    )
    bill = fleet_bill(ws, by="job")
    # Two of four devices are the other one's for an hour.
    assert hours(bill) == {"a": 10, "b": 8}
    for job_id, held in hours(bill).items():
        view = job_view(ws, job_id, price=PRICE, last_steps=10)
        assert view.metrics["gpu_hours"].value == pytest.approx(held)
        assert view.metrics["spend_usd"].value == pytest.approx(2 * held)
        known = [own.gpu_seconds or 0 for own in view.bill.lines]
        assert sum(known) / 3600 == pytest.approx(held)
        assert any("job b" in text for text in view.bill.findings) == (job_id == "a")
    (text,) = job_view(ws, "a", price=None).bill.findings[-1:]
    assert "7,200 GPU-seconds (2.00 GPU-hours) are in the bill of job b" in text
    review = executive_view(ws, price=PRICE)
    assert {row.job_id: row.gpu_hours.value for row in review.jobs} == pytest.approx(hours(bill))


def test_whole_job_and_window_are_two_numbers(tmp_path: Path, steptax: Any) -> None:
    """One id, one number: in the list, the job, its window and the review, and the ledger."""
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", START, START + 3 * HOUR)],
        steps=steps("a", START + HOUR, 60),
    )
    for more, shown in ((), 60), (("--window", 30), 30):
        data = steptax("job", "a", "--price", 2, "--lake", ws.root, *more)
        found = {name: measure["value"] for name, measure in data["metrics"].items()}
        assert found["gpu_hours"] == pytest.approx(3 * RANKS)
        assert found["spend_usd"] == pytest.approx(2 * 3 * RANKS)
        assert found["window_gpu_hours"] == pytest.approx(shown / 60 * RANKS)
        assert found["window_usd"] == pytest.approx(2 * shown / 60 * RANKS)
    (listed,) = steptax("jobs", "--price", 2, "--lake", ws.root)
    review = steptax("executive", "--price", 2, "--lake", ws.root)
    ledger = steptax("ledger", "--price", 2, "--lake", ws.root)["total"]
    for name in ("gpu_hours", "spend_usd"):
        assert listed[name]["value"] == found[name]
        assert review["metrics"][name]["value"] == found[name]
    assert ledger["gpu_hours"] == found["gpu_hours"]


def test_a_job_of_accounting_alone_has_the_bill_of_the_ledger(tmp_path: Path, steptax: Any) -> None:
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", START, START + 3 * HOUR), job("queued", None, None, state="pending")],
    )
    data = steptax("job", "a", "--price", 2, "--lake", ws.root)
    assert "card" not in data
    assert "has no steps" in data["no_card"]
    assert data["metrics"]["spend_usd"]["value"] == 2 * 3 * RANKS
    (line,) = [own for own in data["bill"]["lines"] if own["gpu_seconds"]]
    ledger = steptax("ledger", "--job", "a", "--price", 2, "--lake", ws.root)["total"]
    (same,) = [own for own in ledger["lines"] if own["gpu_seconds"]]
    for name in ("bucket", "gpu_seconds", "usd"):
        assert line[name] == same[name]
    error = steptax("job", "queued", "--lake", ws.root, fails=2)
    assert "has no steps" in error["message"]


def test_the_bill_changes_when_the_other_job_comes(tmp_path: Path) -> None:
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", START, START + 3 * HOUR)],
        ranks=devices("a", uuids()),
        steps=steps("a", START, 170),
    )
    assert total(fleet_bill(ws)) == 12
    ws.lake.append("ranks", rows(devices("b", uuids())), source="later")
    ws.lake.append("jobs", rows([job("b", START + 2 * HOUR, START + 4 * HOUR)]), source="later")
    assert hours(fleet_bill(ws, by="job")) == {"a": 8, "b": 8}


def test_a_job_within_another_gives_the_devices_back(tmp_path: Path) -> None:
    """A job that was evicted and runs again; between its attempts another one has its devices."""
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", START, START + 6 * HOUR), job("b", START + 2 * HOUR, START + 3 * HOUR)],
        ranks=devices("a", uuids()) + devices("b", uuids()),
        steps=steps("a", START, 120)
        + steps("a", START + 3 * HOUR, 180, attempt=1, first=120)
        + steps("b", START + 2 * HOUR, 60),
        events=[event("a", "evict", START + 2 * HOUR)],
    )
    assert hours(fleet_bill(ws, by="job")) == {"a": 5 * RANKS, "b": RANKS}
    held = {line.bucket: line.gpu_seconds for line in job_view(ws, "a", price=None).bill.lines}
    assert not held["recovery"]


def test_attempts_of_one_job_share_nothing_with_themselves(tmp_path: Path) -> None:
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", START, START + 6 * HOUR)],
        ranks=devices("a", uuids()),
        steps=steps("a", START, 120) + steps("a", START + 3 * HOUR, 180, attempt=1, first=100),
    )
    ws.lake.append("ranks", rows(devices("a", uuids())), source="second attempt")
    bill = fleet_bill(ws)
    assert total(bill) == 6 * RANKS
    assert not warned(bill, "count")


def test_a_requeued_job_of_another_name_takes_over(tmp_path: Path) -> None:
    """A scheduler's record of the first ends a little after the second has begun."""
    ws = lake_of(
        tmp_path / "lake",
        jobs=[
            job("1", START, START + HOUR + 30 * S),
            job("2", START + HOUR, START + 2 * HOUR, attempt_of="1"),
        ],
        ranks=devices("1", uuids()) + devices("2", uuids()),
    )
    assert total(fleet_bill(ws)) == pytest.approx(2 * RANKS)


def test_a_job_that_lost_everything_has_a_bill_of_nothing(tmp_path: Path) -> None:
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", START, START + HOUR), job("b", START, START + HOUR)],
        ranks=devices("a", uuids()) + devices("b", uuids()),
        steps=steps("a", START, 50),
    )
    assert hours(fleet_bill(ws, by="job", price=PRICE)) == {"a": 0, "b": RANKS}


def test_an_index_on_a_host_is_a_device(tmp_path: Path) -> None:
    """Of one job the uuids are known as well: they are the same devices."""
    one = [row | {"gpu_index": row["rank"]} for row in devices("a", uuids())]
    two = [row | {"gpu_uuid": None, "gpu_index": row["rank"]} for row in devices("b", uuids())]
    other = [row | {"host": "elsewhere"} for row in two]
    spans = [job(name, START, START + HOUR) for name in ("a", "b")]
    ws = lake_of(tmp_path / "same", jobs=spans, ranks=one + two)
    assert total(fleet_bill(ws)) == RANKS
    ws = lake_of(tmp_path / "elsewhere", jobs=spans, ranks=one + other)
    assert total(fleet_bill(ws)) == 2 * RANKS


@pytest.mark.parametrize("index", [None, 0])
def test_where_devices_are_not_known_nothing_is_guessed(tmp_path: Path, index: int | None) -> None:
    """Without any device, or with an index that counts what each rank can see."""
    unknown = [
        row | {"gpu_index": index}
        for name in ("a", "b")
        for row in devices(name, ["unknown"] * RANKS)
    ]
    spans = [job("a", START, START + HOUR), job("b", START + HOUR // 2, START + 2 * HOUR)]
    ws = lake_of(tmp_path / "lake", jobs=spans, ranks=unknown)
    bill = fleet_bill(ws)
    assert total(bill) == 2.5 * RANKS
    assert warned(bill, "node (a, b)", "up to 2.00 GPU-hours count twice")
    # A host that is known to have eight devices has room for both; one of six has not.
    seen = [{"host": "node", "gpu_uuid": f"{k}", "ts_us": START} for k in range(8)]
    ws.lake.append("device_samples", rows(seen[:6]), source="exporter")
    assert warned(fleet_bill(ws), "8 of 6 on node")
    ws.lake.append("device_samples", rows(seen[6:]), source="exporter")
    assert not warned(fleet_bill(ws), "twice")


def test_the_providers_bill_adds_up_over_shared_devices(tmp_path: Path) -> None:
    """Node 1 costs $10 an hour, node 2 $100: a job that loses node 1 keeps its part of node 2."""
    both = devices("a", uuids()[:2], "node-1") + [
        row | {"rank": row["rank"] + 2} for row in devices("a", uuids(4)[:2], "node-2")
    ]
    taken = devices("b", uuids()[:2], "node-1")
    ws = lake_of(
        tmp_path / "lake",
        jobs=[
            job("a", START, START + 2 * HOUR),
            job("b", START + HOUR, START + 2 * HOUR, world_size=2),
        ],
        ranks=both + taken,
        charges=[
            charge("1", START, START + 2 * HOUR, "20", "node-1"),
            charge("2", START, START + 2 * HOUR, "200", "node-2"),
        ],
    )
    bill = fleet_bill(ws, by="job")
    assert hours(bill) == {"a": 6, "b": 2}
    assert {g.name: g.cost for g in bill.groups} == {"a": Decimal(210), "b": Decimal(10)}
    found = bill.reconciliation
    assert found.effective_cost == found.jobs_cost == Decimal(220)
    assert bill.total is not None
    assert bill.total.cost == found.effective_cost
    # In this zone a day begins as the other job does.
    days = fleet_bill(ws, by="day", tz="Etc/GMT+1")
    assert hours(days) == {"2026-02-28": 4, "2026-03-01": 4}
    assert {g.cost for g in days.groups} == {Decimal(110)}
    late = fleet_bill(ws, by="job", tz="Etc/GMT+1", first=date(2026, 3, 1))
    assert {g.name: g.cost for g in late.groups} == {"a": Decimal(100), "b": Decimal(10)}


@settings(max_examples=25)
@given(
    spans=st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 20), st.sets(st.integers(0, 5), min_size=1)),
        min_size=1,
        max_size=6,
    )
)
def test_every_gpu_second_is_in_one_bill(spans: list[tuple[int, int, set[int]]]) -> None:
    """What is paid is how long each device was held by anybody, whoever claims it as well."""
    with tempfile.TemporaryDirectory() as folder:
        jobs, ranks = [], []
        taken: set[tuple[int, int]] = set()
        for k, (start, length, held) in enumerate(spans):
            name = f"j{k}"
            first, last = START + start * HOUR, START + (start + length) * HOUR
            jobs.append(job(name, first, last, world_size=len(held)))
            ranks += devices(name, [uuids()[0] + f"-{d}" for d in sorted(held)])
            taken |= {(d, t) for d in held for t in range(start, start + length)}
        bill = fleet_bill(lake_of(Path(folder), jobs=jobs, ranks=ranks), by="job", price=PRICE)
        assert not bill.not_billed
        assert total(bill) == pytest.approx(len(taken))
        assert sum(hours(bill).values()) == pytest.approx(len(taken))
        if taken:
            assert bill.total is not None
            assert bill.total.cost == 2 * len(taken)
