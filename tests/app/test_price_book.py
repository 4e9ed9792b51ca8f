"""Prices by hand: entered, held, accepted by somebody, kept, and used where no bill tells."""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from steptax.app.errors import NotFoundError, UserError
from steptax.app.lake import Lake
from steptax.app.price_book import accept, add, entries, held
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.pricing.offers import OfferFilter
from steptax.app.views.workspace import Workspace, open_workspace
from tests.app.fleet_lake import charge, job, lake_of, on, us

SPAN = us(2026, 11, 5), us(2026, 11, 5, 1)
H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def book(tmp_path: Path) -> Workspace:
    Lake(tmp_path / "lake", create=True)
    return open_workspace(tmp_path / "lake")


def offer(provider: str, price: str, day: str = "2026-11-01", **more: Any) -> dict[str, Any]:
    return {
        "provider": provider,
        "gpu_model": "H100",
        "form_factor": "SXM",
        "observed_on": day,
        "usd_per_gpu_hour": Decimal(price),
    } | more


def test_a_price_far_off_its_peers_waits_for_a_person(book: Workspace) -> None:
    assert not add(book, offer("a", "2.00"), "ann").is_held
    assert not add(book, offer("b", "3.00"), "ann").is_held
    far = add(book, offer("c", "25.00"), "ann")
    zero = add(book, offer("d", "0"), "ann")
    assert (far.is_held, zero.is_held) == (True, True)
    assert "10 times above" in str(far.held_because)
    assert [one.offer["provider"] for one in entries(book)] == ["a", "b"]
    assert {one.name for one in held(book)} == {far.name, zero.name}

    before = time.time_ns() // 1000
    accept(book, [far.name], "bob")
    found = {one.offer["provider"]: one for one in entries(book)}
    assert found["c"].accepted_by == "bob"
    assert found["c"].stored_us >= before
    assert found["c"].held_because == far.held_because
    assert found["a"].accepted_by == "ann"
    assert [one.name for one in held(book)] == [zero.name]
    # It was accepted once; nothing of that name is held any more.
    with pytest.raises(NotFoundError, match=far.name):
        accept(book, [zero.name, far.name], "bob")
    assert [one.name for one in held(book)] == [zero.name]


def test_every_day_of_an_offer_is_kept(book: Workspace) -> None:
    for day, price in (("2026-11-02", "2.10"), ("2026-11-01", "2.00"), ("2026-11-03", "1.90")):
        add(book, offer("a", price, day), "ann")
    assert [one.offer["usd_per_gpu_hour"] for one in entries(book)] == [Decimal("1.90")]
    history = [one.offer["observed_on"] for one in entries(book, history=True)]
    assert history == ["2026-11-01", "2026-11-02", "2026-11-03"]


def test_a_price_may_move_tenfold_against_itself_only_if_others_do(book: Workspace) -> None:
    """The offer's own past is no peer: a first price that was wrong must not hold the right one."""
    add(book, offer("a", "30.00", "2026-11-01"), "ann")
    assert not add(book, offer("a", "2.00", "2026-11-02"), "ann").is_held


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (offer("a", "-1"), "at least 0"),
        (offer("a", "NaN"), "at least 0"),
        (offer("a", "1", "soon"), "no day 'soon'"),
    ],
)
def test_what_is_no_price(book: Workspace, what: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        add(book, what, "ann")
    with pytest.raises(UserError, match="nobody is named"):
        add(book, offer("a", "1"), " ")
    assert not entries(book)


def test_the_commands(tmp_path: Path, steptax: Callable[..., Any]) -> None:
    offers = tmp_path / "offers.csv"
    offers.write_text(
        "provider,gpu_model,form_factor,usd_per_gpu_hour,observed_on\n"
        "a,H100,SXM,2.5,2026-11-01\nb,H100,SXM,0,2026-11-01\n"
    )
    steptax("ingest", "prices", str(offers))
    options = ("--gpu-model", "H100", "--form-factor", "SXM", "--observed-on", "2026-11-02")
    told = steptax("prices", "add", "--provider", "c", "--price", "$99", *options, "--by", "ann")
    assert told["held"]
    waiting = steptax("prices", "held")
    assert {one["provider"] for one in waiting} == {"b", "c"}
    by_name = {one["provider"]: one["id"] for one in waiting}
    assert by_name["c"] == told["id"]
    steptax("prices", "accept", by_name["b"], "--by", "bob")
    assert [one["provider"] for one in steptax("prices", "held")] == ["c"]
    listed = {one["provider"]: one for one in steptax("prices", "list", "--gpu-model", "h100")}
    assert set(listed) == {"a", "b"}
    assert (listed["b"]["accepted_by"], listed["b"]["held_because"]) == ("bob", "a price of 0")
    # The same file again brings nothing back to those that wait.
    steptax("ingest", "prices", str(offers), "--provider", "other")
    assert [one["provider"] for one in steptax("prices", "held")] == ["c"]


def test_a_file_is_held_against_what_is_stored(tmp_path: Path, steptax: Callable[..., Any]) -> None:
    head = "provider,gpu_model,usd_per_gpu_hour,observed_on\n"
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text(head + "a,H100,2.5,2026-11-01\nb,H100,3,2026-11-01\n")
    second.write_text(head + "c,H100,40,2026-11-02\n")
    steptax("ingest", "prices", str(first))
    told = steptax("ingest", "prices", str(second))
    assert told["tables"]["prices"]["rejected"] == 1
    assert [one["provider"] for one in steptax("prices", "held")] == ["c"]
    again = steptax("ingest", "prices", str(second))
    assert again["ingests"][0]["already"]


def test_the_ledger_says_whose_price_it_takes(tmp_path: Path) -> None:
    ws = lake_of(tmp_path / "lake", jobs=[job("j", *SPAN, gpu_model=H100)])
    add(ws, offer("a", "2.00", term="on-demand"), "ann")
    add(ws, offer("b", "1.00", term="spot"), "ann")
    add(ws, offer("b", "9.00", "2026-12-01", term="spot"), "ann")
    unclear = fleet_bill(ws)
    assert unclear.total is not None
    assert unclear.total.cost is None
    assert any("--term" in text for text in unclear.warnings)
    bill = fleet_bill(ws, offers=OfferFilter(term="spot"))
    assert bill.total is not None
    assert bill.total.cost == Decimal("4.00")
    (used,) = bill.prices
    assert used.jobs == 1
    assert used.badge == "list price $1.00 per GPU-hour: b, spot, seen 2026-11-01"
    assert bill.as_json()["list_prices"][0]["source"] == "by hand: ann"


def test_beside_a_bill_a_list_price_is_an_estimate_and_in_no_sum(tmp_path: Path) -> None:
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("billed", *SPAN, gpu_model=H100), job("free", *SPAN, gpu_model=H100)],
        ranks=[*on("billed", "n1"), *on("free", "n2")],
        charges=[charge("1", *SPAN, "7.00", "n1")],
    )
    add(ws, offer("a", "2.00"), "ann")
    bill = fleet_bill(ws, by="job")
    assert bill.total is not None
    assert bill.total.cost == bill.reconciliation.effective_cost == Decimal("7.00")
    assert not bill.prices
    (said,) = [text for text in bill.warnings if "estimate" in text]
    assert said.startswith("1 job that no charge names would cost $8.00 (list price $2.00")


@pytest.mark.parametrize(
    "name",
    [
        "h100",
        "H100-80GB",
        "NVIDIA H100 80GB HBM3",
        "NVIDIA-H100-80GB-HBM3",
        "H100_SXM",
        "H100 PCIe",
    ],
)
def test_a_price_is_held_whatever_its_device_is_called(
    name: str, tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    head = "provider,gpu_model,usd_per_gpu_hour,observed_on\n"
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text(head + "a,H100 SXM,2.5,2026-11-01\nb,H100,3,2026-11-01\n")
    second.write_text(head + f"c,{name},40,2026-11-02\nd,{name},2.75,2026-11-02\n")
    steptax("ingest", "prices", str(first))
    steptax("ingest", "prices", str(second))
    assert [one["provider"] for one in steptax("prices", "held")] == ["c"]


def test_the_first_price_of_a_device_has_a_bound(book: Workspace) -> None:
    wild = add(book, offer("a", "250"), "ann")
    assert "first price" in str(wild.held_because)
    add(book, offer("a", "2.50"), "ann")
    other = add(book, offer("b", "40", gpu_model="B200"), "ann")
    assert "dearest other device" in str(other.held_because)
    assert not add(book, offer("b", "6", gpu_model="B200"), "ann").is_held
