"""Bills that come again: the newest delivery of a month holds, and every cent counts once."""

from __future__ import annotations

import csv
import json
import os
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
from steptax.app.views.bill.invoices import invoices_of
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.workspace import open_workspace
from steptax.app.watch import Watch
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


def test_a_delivery_in_many_parts_replaces_one_that_was_whole(tmp_path: Path) -> None:
    old = [line(hour, "10", f"r{k}") for hour in range(3) for k in range(8)]
    new = [row | {"BilledCost": "9", "EffectiveCost": "9"} for row in old]
    store(tmp_path, "month.csv", old)
    for part in range(4):  # each names a quarter of it
        store(tmp_path, f"part{part}.csv", [r for r in new if int(r["ResourceId"][1]) % 4 == part])
    assert total(tmp_path) == sums(new)


def test_parts_that_name_no_resources_add_up(tmp_path: Path) -> None:
    """One export in two files, by team: all that tells their lines apart is the tag."""
    parts = [
        [line(hour, "10", "", Tags=f'{{"team": "{team}"}}') for hour in range(6)]
        for team in ("nlp", "vision")
    ]
    for number, rows in enumerate(parts):
        store(tmp_path, f"part{number}.csv", rows)
    assert total(tmp_path) == Decimal(120)
    again = [row | {"BilledCost": "11"} for row in parts[1]]
    store(tmp_path, "part1-again.csv", again)
    assert total(tmp_path) == Decimal(126)


def test_an_older_export_that_comes_later_is_named(tmp_path: Path) -> None:
    new, old = [line(h, "11") for h in range(4)], [line(h, "10") for h in range(4)]
    os.utime(write(tmp_path / "old.csv", old), (1_000_000, 1_000_000))
    lake = Lake(tmp_path / "lake", create=True)
    store(tmp_path, "new.csv", new)
    said = ingest_file(lake, "focus", tmp_path / "old.csv", Options()).notes
    assert any(text.startswith("OUT OF ORDER? focus:new.csv") for text in said)
    # As it advises, the newer one under another name holds.
    said = store(tmp_path, "newer.csv", new).notes
    assert not any(text.startswith("OUT OF ORDER?") for text in said)
    assert total(tmp_path) == sums(new)


def test_a_watched_folder_of_bills_is_taken_in_the_order_of_writing(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    old = [line(h, "10") for h in range(4)]
    new = [line(h, "11") for h in range(5)]
    os.utime(write(folder / "z-first.csv", old), (1_000_000, 1_000_000))
    os.utime(write(folder / "a-second.csv", new), (2_000_000, 2_000_000))
    watch = Watch(Lake(tmp_path / "lake", create=True), "focus", folder, Options())
    assert len(list(watch.look(settled=True))) == 2
    assert total(tmp_path) == sums(new)
    watch.close()


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


CUR = (
    "bill/InvoiceId,bill/PayerAccountId,bill/BillingPeriodStartDate,lineItem/LineItemType,"
    "lineItem/UsageStartDate,lineItem/ResourceId,lineItem/UnblendedCost\n"
)


def cur(root: Path, name: str, costs: Sequence[str], account: str = "1", **how: str) -> list[str]:
    """Ingest a native bill of October, hour by hour; what was said."""
    rows = (
        f"INV-1,{account},2026-10-01T00:00:00Z,Usage,2026-10-01T{hour:02}:00:00Z,i-{hour},{cost}\n"
        for hour, cost in enumerate(costs)
    )
    (root / name).write_text(CUR + "".join(rows))
    lake = Lake(root / "lake", create=True)
    return list(ingest_file(lake, "aws-cur", root / name, Options(extra=how)).notes)


def counted_twice(notes: Sequence[str]) -> list[str]:
    return [text for text in notes if text.startswith(("HELD", "COUNTED TWICE?", "takes the"))]


class TestTwoKindsOfFile:
    """A bill that comes as FOCUS and in the provider's own format, of the same account."""

    def test_the_second_kind_is_held_and_the_ledger_says_so(self, tmp_path: Path) -> None:
        cur(tmp_path, "cur.csv", ["10", "20"])
        rows = [line(0, "10"), line(1, "20"), line(2, "40")]
        (said,) = counted_twice(store(tmp_path, "focus.csv", rows[:2]).notes)
        assert said.startswith("HELD, NOT COUNTED: 2 lines of 2026-10, of which aws-cur:cur.csv")
        assert total(tmp_path) == Decimal(30)
        bill = fleet_bill(open_workspace(tmp_path / "lake"))
        assert bill.reconciliation.effective_cost == Decimal(30)
        (told,) = [text for text in bill.warnings if "another kind of file" in text]
        assert told.startswith("not counted: 2 lines of focus:focus.csv, since aws-cur:cur.csv")
        # Held again in its next delivery; what the first kind does not tell of counts.
        said = counted_twice(store(tmp_path, "focus2.csv", rows).notes)[0]
        assert "HELD, NOT COUNTED: 2 lines" in said
        assert total(tmp_path) == Decimal(70)
        # The first kind goes on, and meets a line that counts already: nothing is counted twice.
        cur(tmp_path, "cur2.csv", ["10", "20", "40"])
        assert total(tmp_path) == Decimal(70)

    def test_the_second_kind_takes_its_place_when_a_person_says_so(self, tmp_path: Path) -> None:
        cur(tmp_path, "cur.csv", ["10", "20"])
        path = write(tmp_path / "focus.csv", [line(0, "11"), line(1, "22")])
        lake = Lake(tmp_path / "lake")
        ingest_file(lake, "focus", path, Options())
        assert total(tmp_path) == Decimal(30)
        result = ingest_file(lake, "focus", path, Options(extra={"same_month": "replace"}))
        assert any("takes the place of 2 lines of aws-cur:cur.csv" in n for n in result.notes)
        assert total(tmp_path) == Decimal(33)
        # From then on it is the native one that is held.
        said = cur(tmp_path, "cur2.csv", ["10", "20", "5"])
        assert "HELD, NOT COUNTED: 2 lines" in counted_twice(said)[0]
        assert total(tmp_path) == Decimal(38)
        with pytest.raises(InputError, match="expected hold, replace, add"):
            ingest_file(lake, "focus", path, Options(extra={"same_month": "both"}))

    def test_both_count_when_a_person_says_so(self, tmp_path: Path) -> None:
        store(tmp_path, "focus.csv", [line(0, "11"), line(1, "22")])
        said = cur(tmp_path, "cur.csv", ["10"], same_month="add")
        assert counted_twice(said)[0].startswith("COUNTED TWICE? focus:focus.csv")
        assert total(tmp_path) == Decimal(43)

    def test_another_account_counts_beside_it(self, tmp_path: Path) -> None:
        store(tmp_path, "focus.csv", [line(0, "11"), line(1, "22")])
        said = cur(tmp_path, "cur.csv", ["10"], account="2")
        assert total(tmp_path) == Decimal(43)
        assert counted_twice(said)[0].startswith("COUNTED TWICE? focus:focus.csv")

    def test_a_line_that_both_say_in_the_same_words_counts_once(self, tmp_path: Path) -> None:
        same = {"ResourceId": "i-0", "Tags": "", "ConsumedQuantity": ""}
        same |= {"ChargePeriodEnd": "", "BillingPeriodEnd": "", "BillingCurrency": ""}
        rows = [line(0, "10", **same)]
        cur(tmp_path, "cur.csv", ["10"])
        store(tmp_path, "focus.csv", rows)
        assert total(tmp_path) == Decimal(10)
        path = tmp_path / "focus.csv"
        replace = Options(extra={"same_month": "replace"})
        ingest_file(Lake(tmp_path / "lake"), "focus", path, replace)
        assert total(tmp_path) == Decimal(10)
        cur(tmp_path, "cur2.csv", ["10", "0"])
        assert total(tmp_path) == Decimal(10)


@settings(max_examples=6)
@given(st.data())
def test_every_order_of_two_kinds_counts_each_hour_once(data: st.DataObject) -> None:
    """The same bill as FOCUS and as native export, each growing, in any order and as chosen."""
    files = data.draw(
        st.lists(
            st.tuples(st.sampled_from(["focus", "aws-cur"]), st.integers(1, 8), st.booleans()),
            min_size=2,
            max_size=4,
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for number, (kind, hours, replaces) in enumerate(files):
            how = {"same_month": "replace"} if replaces else {}
            if kind == "aws-cur":
                cur(root, f"{number}.csv", ["10"] * hours, **how)
                continue
            path = write(root / f"{number}.csv", [line(h, "10", f"i-{h}") for h in range(hours)])
            ingest_file(Lake(root / "lake", create=True), kind, path, Options(extra=how))
        assert total(root) == 10 * max(hours for _, hours, _ in files)


AZURE = (
    "BillingAccountId,Date,BillingPeriodStartDate,BillingPeriodEndDate,CostInBillingCurrency,"
    "BillingCurrency,ResourceId,MeterId,MeterCategory,ChargeType,PricingModel,ReservationId,"
    "PayGCostInBillingCurrency\n"
)


def azure(root: Path, name: str, lines: Sequence[tuple[int, str, str, str]]) -> IngestResult:
    """Ingest an export of October: day, cost, meter, pricing model."""
    text = "".join(
        f"77,10/{day:02}/2026,10/01/2026,10/31/2026,{cost},EUR,/vm/{meter},{meter},Compute,"
        f"{'Purchase' if meter == 'buy' else 'Usage'},{model},{'r1' * (model == 'Reservation')},3\n"
        for day, cost, meter, model in lines
    )
    (root / name).write_text(AZURE + text)
    lake = Lake(root / "lake", create=True)
    return ingest_file(lake, "azure-cost", root / name, Options())


class TestActualAndAmortised:
    """The two exports of Azure: what was billed, and what it is worth."""

    ACTUAL = (
        (1, "10", "ondemand", "OnDemand"),
        (1, "0", "reserved", "Reservation"),
        (1, "90", "buy", "Reservation"),
    )
    AMORTISED = (
        (1, "10", "ondemand", "OnDemand"),
        (1, "3", "reserved", "Reservation"),
    )

    @pytest.mark.parametrize("is_actual_first", [True, False])
    def test_each_counts_for_what_it_alone_says(
        self, tmp_path: Path, is_actual_first: bool
    ) -> None:
        files = [("ActualCost.csv", self.ACTUAL), ("AmortizedCost.csv", self.AMORTISED)]
        for name, lines in files if is_actual_first else files[::-1]:
            notes = azure(tmp_path, name, lines).notes
        assert any(text.startswith("joined with the other export") for text in notes)
        ws = open_workspace(tmp_path / "lake")
        invoices = invoices_of(ws)
        assert sum(one.billed_cost or 0 for one in invoices) == Decimal(100)
        assert sum(one.effective_cost or 0 for one in invoices) == Decimal(13)
        assert sum(one.list_cost or 0 for one in invoices) == Decimal(9)
        bill = fleet_bill(ws)
        assert bill.reconciliation.billed_cost == Decimal(100)
        assert bill.reconciliation.effective_cost == Decimal(13)

    def test_later_exports_of_each_replace_their_own(self, tmp_path: Path) -> None:
        azure(tmp_path, "ActualCost-1.csv", self.ACTUAL)
        azure(tmp_path, "AmortizedCost-1.csv", self.AMORTISED)
        more = ((2, "7", "ondemand", "OnDemand"),)
        azure(tmp_path, "ActualCost-2.csv", [*self.ACTUAL, *more])
        # The second day has no amortised line yet: its own says what it is worth.
        invoices = invoices_of(open_workspace(tmp_path / "lake"))
        assert sum(one.effective_cost or 0 for one in invoices) == Decimal(20)
        azure(
            tmp_path,
            "AmortizedCost-2.csv",
            [*self.AMORTISED[:1], (1, "4", "reserved", "Reservation"), *more],
        )
        invoices = invoices_of(open_workspace(tmp_path / "lake"))
        assert sum(one.billed_cost or 0 for one in invoices) == Decimal(107)
        assert sum(one.effective_cost or 0 for one in invoices) == Decimal(21)


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


@settings(max_examples=12)
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
