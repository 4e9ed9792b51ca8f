"""Bills that come again: the newest delivery of a month holds, and every cent counts once."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.errors import InputError
from steptax.app.ingest import ingest_file, ingest_url
from steptax.app.lake import Lake
from steptax.app.lake.ingest import IngestResult
from steptax.app.views.fleet_bill import fleet_bill
from steptax.app.views.invoices import invoices_of
from steptax.app.views.workspace import open_workspace
from steptax.connectors.base import Options
from tests.app.fleet_lake import job, lake_of

Row = dict[str, str]


def line(hour: int, cost: str, resource: str = "r", **more: str) -> Row:
    """One hour of a FOCUS bill of October 2026."""
    day, at = divmod(hour, 24)
    return {
        "ProviderName": "AWS",
        "BillingAccountId": "1",
        "InvoiceId": "INV-1",
        "BillingPeriodStart": "2026-10-01T00:00:00Z",
        "BillingPeriodEnd": "2026-11-01T00:00:00Z",
        "ChargePeriodStart": f"2026-10-{day + 1:02}T{at:02}:00:00Z",
        "ChargePeriodEnd": f"2026-10-{day + 1:02}T{at:02}:59:59Z",
        "BilledCost": cost,
        "EffectiveCost": cost,
        "BillingCurrency": "USD",
        "ChargeCategory": "Usage",
        "ResourceId": resource,
        "ConsumedQuantity": "1",
        "Tags": '{"team": "nlp", "app": "x"}',
    } | more


def write(path: Path, rows: Sequence[Row]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def store(root: Path, name: str, rows: Sequence[Row]) -> IngestResult:
    path = write(root / name, rows)
    return ingest_file(Lake(root / "lake", create=True), "focus", path, Options())


def total(root: Path) -> Decimal:
    found = [one.billed_cost for one in invoices_of(open_workspace(root / "lake"))]
    assert None not in found
    return sum((cost for cost in found if cost is not None), Decimal(0))


def sums(rows: Sequence[Row]) -> Decimal:
    return sum((Decimal(row["BilledCost"]) for row in rows), Decimal(0))


def test_one_bill_in_every_format_and_spelling_counts_once(tmp_path: Path) -> None:
    rows = [line(0, "10"), line(0, "10"), line(1, "2.5"), line(2, "-0.25")]
    store(tmp_path, "a.csv", rows)
    lake = Lake(tmp_path / "lake")
    spelled = [
        dict(reversed(row.items()))
        | {
            "BilledCost": f"{Decimal(row['BilledCost']):.4f}",
            "EffectiveCost": f"{row['EffectiveCost']}E0",
            "ChargePeriodStart": row["ChargePeriodStart"].replace("T", " ").replace("Z", " UTC"),
            "ChargeCategory": "usage",
            "ConsumedQuantity": "1.00",
            "Tags": '{"app":"x","team":"nlp"}',
        }
        for row in rows
    ]
    assert store(tmp_path, "b.csv", spelled).accepted["charges"] == 0
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    typed: list[dict[str, Any]] = [
        row | {"BilledCost": float(row["BilledCost"]), "ConsumedQuantity": 1.0} for row in rows
    ]
    pq.write_table(pa.Table.from_pylist(typed), tmp_path / "d.parquet")
    for name in ("c.jsonl", "d.parquet"):
        result = ingest_file(lake, "focus", tmp_path / name, Options())
        assert result.accepted["charges"] == 0
        assert any("tells 4 lines of" in note for note in result.notes)
    assert total(tmp_path) == sums(rows) == Decimal("22.25")


def test_a_month_that_is_exported_again_replaces_what_was_stored(tmp_path: Path) -> None:
    first = [line(hour, "10") for hour in range(12)]
    second = [line(hour, "7.5" if hour == 3 else "10") for hour in range(30)]
    store(tmp_path, "day1.csv", first)
    said = store(tmp_path, "day2.csv", second).notes
    assert any(text.startswith("replaces 1 line of focus:day1.csv") for text in said)
    assert total(tmp_path) == sums(second)
    # Nothing is lost, and the ledger says what does not count.
    ws = open_workspace(tmp_path / "lake")
    assert ws.lake.read("charges").num_rows == 31
    bill = fleet_bill(ws)
    assert bill.reconciliation.effective_cost == sums(second)
    said_of = "not counted: 1 line of focus:day1.csv, replaced by focus:day2.csv"
    assert any(text.startswith(said_of) for text in bill.warnings)
    # The price goes back: the old line counts again, once.
    third = [line(hour, "10") for hour in range(31)]
    store(tmp_path, "day3.csv", third)
    assert total(tmp_path) == sums(third)
    # All of it at another price.
    fourth = [line(hour, "8", Tags='{"team": "vision"}') for hour in range(31)]
    store(tmp_path, "day4.csv", fourth)
    assert total(tmp_path) == sums(fourth)


def test_an_invoice_that_gets_its_id_late_is_the_same_bill(tmp_path: Path) -> None:
    rows = [line(hour, "10") for hour in range(5)]
    store(tmp_path, "open.csv", [row | {"InvoiceId": ""} for row in rows])
    store(tmp_path, "closed.csv", rows)
    assert [one.name for one in invoices_of(open_workspace(tmp_path / "lake"))] == ["INV-1"]
    # Another invoice, and another account, are other bills.
    store(tmp_path, "more.csv", [row | {"InvoiceId": "INV-2"} for row in rows])
    store(
        tmp_path, "other.csv", [row | {"BillingAccountId": "2", "InvoiceId": "Z"} for row in rows]
    )
    assert total(tmp_path) == 3 * sums(rows)


def test_lines_with_ids_get_new_prices_too(tmp_path: Path) -> None:
    rows = [line(hour, "10", x_LineItemId=f"id-{hour}") for hour in range(4)]
    store(tmp_path, "a.csv", rows)
    rows[2] = rows[2] | {"BilledCost": "1"}
    store(tmp_path, "b.csv", rows)
    assert total(tmp_path) == Decimal(31)


def test_a_bill_that_an_older_version_stored_does_not_double(tmp_path: Path) -> None:
    rows = [line(hour, "10") for hour in range(4)]
    (tmp_path / "new").mkdir()
    store(tmp_path / "new", "a.csv", rows)
    stored = Lake(tmp_path / "new" / "lake").read("charges")
    at = stored.column_names.index("line")
    old = stored.set_column(at, "line", pa.array([f"old{i}" for i in range(4)]))
    old = old.drop_columns(["billing_account", "source", "ingested_at_us"])
    Lake(tmp_path / "lake", create=True).append("charges", old, source="focus:a.csv")
    said = store(tmp_path, "again.csv", rows[:1]).notes  # a part of it: only that is known again
    assert any(text.startswith("replaces 1 line of focus:a.csv") for text in said)
    assert total(tmp_path) == sums(rows)
    store(tmp_path, "a.csv", rows)
    assert total(tmp_path) == sums(rows)


def test_the_same_month_from_two_kinds_of_file_is_warned_of(tmp_path: Path) -> None:
    head = (
        "bill/InvoiceId,bill/PayerAccountId,bill/BillingPeriodStartDate,lineItem/LineItemType,"
        "lineItem/UsageStartDate,lineItem/UnblendedCost\n"
    )
    (tmp_path / "cur.csv").write_text(
        head + "INV-1,1,2026-10-01T00:00:00Z,Usage,2026-10-01T00:00:00Z,10\n"
    )
    ingest_file(Lake(tmp_path / "lake", create=True), "aws-cur", tmp_path / "cur.csv", Options())
    said = store(tmp_path, "focus.csv", [line(0, "10")]).notes
    (warning,) = [text for text in said if text.startswith("COUNTED TWICE?")]
    assert "aws-cur:cur.csv" in warning
    assert "as focus too" in warning


def test_the_ledger_says_that_lines_were_rejected(tmp_path: Path) -> None:
    store(tmp_path, "bad.csv", [line(0, "10"), line(1, "ten"), line(2, "much")])
    bill = fleet_bill(open_workspace(tmp_path / "lake"))
    (said,) = [text for text in bill.warnings if "rejected" in text]
    assert said.startswith("2 lines of focus:bad.csv rejected")


def test_a_given_price_that_counts_for_no_job_says_why(tmp_path: Path) -> None:
    ws = lake_of(tmp_path / "lake", jobs=[job("j", None, None)])
    basis = fleet_bill(ws, by="month", price=Decimal(2)).cost_basis
    assert basis.startswith("given price $2.00 per GPU-hour, of no job")
    assert fleet_bill(ws, by="month").cost_basis.startswith("no price is set")


def test_a_login_in_an_address_is_named_as_ignored_and_never_printed(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    with pytest.raises(InputError) as error:
        ingest_url(lake, "mlflow", "http://ann:s3cret@127.0.0.1:9/", Options())
    told = f"{error.value} {error.value.hint}"
    assert "user and password in the address are ignored" in told
    assert "MLFLOW_TRACKING_USERNAME" in told
    assert "s3cret" not in told


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_way_of_delivering_a_month_gives_its_total(data: st.DataObject) -> None:
    costs = st.integers(-500, 5000).map(lambda cents: str(Decimal(cents) / 100))
    hours = data.draw(st.lists(st.integers(0, 60), min_size=4, max_size=25))
    month = [line(hour, data.draw(costs), data.draw(st.sampled_from("ab"))) for hour in hours]
    month.sort(key=lambda row: row["ChargePeriodStart"])
    way = data.draw(st.sampled_from(["twice", "grows", "reprices", "all", "halves", "parts again"]))
    cut = data.draw(st.integers(1, len(month) - 1))
    files = [month, month]
    if way == "grows":
        files = [month[:cut], month]
    elif way in ("reprices", "all"):
        before = [dict(row) for row in month]
        changed = range(len(month)) if way == "all" else [cut]
        for i in changed:
            before[i] |= {"BilledCost": data.draw(costs)}
        files = [before, month]
    else:
        by_resource = [[r for r in month if r["ResourceId"] == name] for name in "ab"]
        if all(by_resource) and way != "twice":
            files = by_resource * (2 if way == "parts again" else 1)
    with tempfile.TemporaryDirectory() as folder:
        for number, rows in enumerate(files):
            store(Path(folder), f"{number}.csv", rows)
        assert total(Path(folder)) == sums(month), way
