"""Bills as the clouds write them: names, types, packing and numbers of each."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steptax.app.errors import InputError
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.workspace import open_workspace
from steptax.benchmarks.product.focus import Month, bill, divide, place_jobs, read_file, write
from steptax.connectors.base import Options
from steptax.connectors.registry import connector


def us(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc, arg-type]


def read(
    kind: str, path: Path, **options: Any
) -> tuple[list[dict[str, Any]], list[Any], list[str]]:
    batches = list(connector(kind).read(path, Options(**options)))
    return (
        [row for batch in batches for row in batch.rows.to_pylist()],
        [reject for batch in batches for reject in batch.rejects],
        [note for batch in batches for note in batch.notes],
    )


SPAN = us(2026, 3, 1), us(2026, 3, 1, 1)


class TestClouds:
    def test_aws_writes_parquet_with_doubles_and_maps(self, tmp_path: Path) -> None:
        """Data Exports: milliseconds, tags as a map, names that Athena has made small."""
        path = tmp_path / "aws.snappy.parquet"
        pairs = pa.map_(pa.string(), pa.string())
        stamp = pa.timestamp("ms")
        table = pa.table(
            {
                "billedcost": [0.0, 98.32],
                "effectivecost": [55.0373088, 98.32],
                "listcost": [98.32, 98.32],
                "contractedcost": [98.32, 98.32],
                "billingcurrency": ["USD", "USD"],
                "billingaccountid": ["1", "1"],
                "billingperiodstart": pa.array([us(2026, 3, 1) // 1000] * 2, stamp),
                "chargeperiodstart": pa.array([SPAN[0] // 1000] * 2, stamp),
                "chargeperiodend": pa.array([SPAN[1] // 1000] * 2, stamp),
                "chargecategory": ["Usage", "Usage"],
                "commitmentdiscountstatus": ["Used", None],
                "capacityreservationstatus": [None, "Unused"],
                "providername": ["AWS", "AWS"],
                "invoiceissuername": ["Amazon Web Services, Inc."] * 2,
                "resourceid": ["i-0abc", "cr-1"],
                "tags": pa.array([[("user_team", "red")], None], pairs),
                "x_servicecode": ["AmazonEC2", "AmazonEC2"],
            }
        )
        pq.write_table(table, path, compression="snappy")
        rows, rejects, _ = read("focus", path)
        assert not rejects
        assert [(r["billed_cost"], r["effective_cost"]) for r in rows] == [
            (0, Decimal("55.0373088")),
            (Decimal("98.32"), Decimal("98.32")),
        ]
        assert [r["list_cost"] for r in rows] == [Decimal("98.32")] * 2
        assert (rows[0]["charge_start_us"], rows[0]["charge_end_us"]) == SPAN
        assert json.loads(rows[0]["tags"]) == {"user_team": "red"}
        assert [r["reservation_status"] for r in rows] == [None, "Unused"]
        assert {r["invoice"] for r in rows} == {"1 2026-03"}

    def test_azure_writes_csv_with_json_tags_and_its_own_columns(self, tmp_path: Path) -> None:
        path = tmp_path / "part_0_0001.csv.gz"
        text = (
            "\ufeffBilledCost,BillingAccountId,BillingCurrency,BillingPeriodEnd,"
            "BillingPeriodStart,ChargeCategory,ChargeClass,ChargePeriodEnd,ChargePeriodStart,"
            "ContractedCost,EffectiveCost,InvoiceId,ListCost,ProviderName,ResourceId,Tags,"
            "x_PricingCurrency,x_EffectiveUnitPrice\r\n"
            "0.0000012,/providers/Microsoft.Billing/billingAccounts/1,EUR,2026-04-01T00:00:00Z,"
            "2026-03-01T00:00:00Z,Usage,,2026-03-01T01:00:00Z,2026-03-01T00:00:00Z,3.5,1.2E-06,"
            'G001,3.5,Microsoft,/subscriptions/s/virtualMachines/node-1,"{""team"":""red"",'
            '""note"":""a, b""}",USD,0.1\r\n'
        )
        path.write_bytes(gzip.compress(text.encode()))
        (row,), rejects, _ = read("focus", path)
        assert not rejects
        assert row["billed_cost"] == row["effective_cost"] == Decimal("0.0000012")
        assert (row["contracted_cost"], row["currency"]) == (Decimal("3.5"), "EUR")
        assert (row["provider"], row["invoice"]) == ("Microsoft", "G001")
        assert json.loads(row["tags"]) == {"team": "red", "note": "a, b"}

    def test_google_writes_decimals_and_lists_of_tags(self, tmp_path: Path) -> None:
        """The FOCUS view of BigQuery: NUMERIC, TIMESTAMP and repeated records."""
        path = tmp_path / "gcp.parquet"
        tag = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
        stamp = pa.timestamp("us", "UTC")
        table = pa.table(
            {
                "BilledCost": pa.array([Decimal("-0.5"), Decimal(2)], pa.decimal128(38, 9)),
                "EffectiveCost": pa.array([Decimal("-0.5"), Decimal(2)], pa.decimal128(38, 9)),
                "BillingCurrency": ["USD", "USD"],
                "BillingAccountId": ["01-AB", "01-AB"],
                "ChargePeriodStart": pa.array([SPAN[0]] * 2, stamp),
                "ChargePeriodEnd": pa.array([SPAN[1]] * 2, stamp),
                "ChargeCategory": ["Credit", "Usage"],
                "ProviderName": ["Google Cloud"] * 2,
                "ResourceId": [None, "//compute.googleapis.com/projects/p/instances/node-1"],
                "Tags": pa.array([[], [{"key": "job", "value": "red-1"}]], tag),
            }
        )
        pq.write_table(table, path)
        rows, rejects, _ = read("focus", path)
        assert not rejects
        assert [r["billed_cost"] for r in rows] == [Decimal("-0.5"), Decimal(2)]
        assert [r["tags"] for r in rows] == [None, '{"job": "red-1"}']
        assert [r["charge_category"] for r in rows] == ["Credit", "Usage"]

    def test_oracle_writes_minutes_and_columns_of_its_own(self, tmp_path: Path) -> None:
        path = tmp_path / "0001000001234567-00001.csv.gz"
        text = (
            "AvailabilityZone,BilledCost,BillingAccountId,BillingCurrency,BillingPeriodEnd,"
            "BillingPeriodStart,ChargeCategory,ChargePeriodEnd,ChargePeriodStart,EffectiveCost,"
            "ListCost,Provider,Publisher,ResourceId,SkuId,Tags,UsageQuantity,UsageUnit,"
            "oci_ReferenceNumber\n"
            "AD-1,10.5,77,USD,2026-04-01T00:00Z,2026-03-01T00:00Z,Usage,2026-03-01T01:00Z,"
            "2026-03-01T00:00Z,10.5,12,Oracle,Oracle,ocid1.instance.oc1..a,B1,"
            '"{""orcl-cloud.free"":""no""}",8,GPU_HOURS,ref=1\n'
        )
        path.write_bytes(gzip.compress(text.encode()))
        (row,), rejects, _ = read("focus", path)
        assert not rejects
        assert (row["provider"], row["billed_cost"]) == ("Oracle", Decimal("10.5"))
        assert (row["charge_start_us"], row["charge_end_us"]) == SPAN
        assert (row["consumed_quantity"], row["consumed_unit"]) == (8, "GPU_HOURS")


class TestLocalNumbers:
    GERMAN = (
        "Abonnement-GUID (SubscriptionGuid);Datum (Date);Kosten (Cost);Verbrauch (Quantity);"
        "ID der Instanz (InstanceId);Währung (Currency);Tags\r\n"
        "s-1;28.02.2026;1.234,56;10,5;/subscriptions/s/virtualMachines/node-1;EUR;\r\n"
        "s-1;1.3.2026;0,004;1;/subscriptions/s/virtualMachines/node-2;EUR;\r\n"
        "s-1;01.03.2026;-5,5;1;/subscriptions/s/virtualMachines/node-2;EUR;\r\n"
        "s-1;01.03.2026;1.5;1;/subscriptions/s/virtualMachines/node-2;EUR;\r\n"
    )

    def test_a_german_export_of_azure(self, tmp_path: Path) -> None:
        path = tmp_path / "nutzung.csv"
        path.write_bytes(b"\xef\xbb\xbf" + self.GERMAN.encode())
        rows, rejects, notes = read("azure-cost", path)
        assert [r["billed_cost"] for r in rows] == [
            Decimal("1234.56"),
            Decimal("0.004"),
            Decimal("-5.5"),
        ]
        assert [r["charge_start_us"] for r in rows] == [
            us(2026, 2, 28),
            us(2026, 3, 1),
            us(2026, 3, 1),
        ]
        assert [r["consumed_quantity"] for r in rows] == [10.5, 1, 1]
        assert {(r["currency"], r["sub_account_id"]) for r in rows} == {("EUR", "s-1")}
        assert rows[0]["resource_id"].endswith("/node-1")
        # 1.5 is neither fifteen nor one and a half where the comma divides: nobody guesses.
        assert [(r.row, r.field) for r in rejects] == [(5, "billed_cost")]
        assert any("1.234,50" in note for note in notes)

    def test_the_decimal_sign_can_be_told(self, tmp_path: Path) -> None:
        path = tmp_path / "bill.csv"
        path.write_text("BilledCost;EffectiveCost;ProviderName\n1,234;1,234;x\n")
        (by_look,), _, _ = read("focus", path)
        assert by_look["billed_cost"] == Decimal("1.234")
        (told,), _, _ = read("focus", path, extra={"decimal": "point"})
        assert told["billed_cost"] == Decimal(1234)
        path.write_text('BilledCost,ProviderName\n"0,5",x\n"1,234",x\n')
        rows, _, _ = read("focus", path)
        assert [r["billed_cost"] for r in rows] == [Decimal("0.5"), Decimal("1.234")]
        with pytest.raises(InputError, match="no decimal sign 'dot'"):
            read("focus", path, extra={"decimal": "dot"})

    def test_months_come_first_where_azure_writes_slashes(self, tmp_path: Path) -> None:
        path = tmp_path / "cost.csv"
        path.write_text("Date,Cost,ResourceId\n2/3/2026,1,a\n02/28/2026,1,a\n28/02/2026,1,a\n")
        rows, rejects, _ = read("azure-cost", path)
        assert [r["charge_start_us"] for r in rows] == [us(2026, 2, 3), us(2026, 2, 28)]
        assert [r.row for r in rejects] == [4]


@pytest.mark.parametrize("name", ["focus.csv", "focus.parquet"])
def test_a_made_up_month_is_read_and_divided_to_the_cent(tmp_path: Path, name: str) -> None:
    month = Month(rows=4000, hosts=4, jobs=2, seed=7)
    table, truth = bill(month)
    write(table, tmp_path / name)
    place_jobs(month, tmp_path / "lake")
    found = read_file(tmp_path / name, tmp_path / "lake")
    assert (found["accepted"], found["rejected"]) == (truth.rows, 0)
    cents = Decimal("0.01")
    for by in ("team", "day"):
        ledger = divide(tmp_path / "lake", by)
        assert Decimal(ledger["effective"]) == truth.effective.quantize(cents)
        assert Decimal(ledger["billed"]) == truth.billed.quantize(cents)
        parts = [Decimal(ledger[part]) for part in ("jobs", "unallocated", "unexplained")]
        assert sum(parts) == Decimal(ledger["effective"])
        assert Decimal(ledger["total"]) == parts[0] + parts[1]
        assert all(parts)
    # What a window costs is what the charges of its hours add up to.
    starts = table["ChargePeriodStart"].to_pylist()
    costs = table["EffectiveCost"].to_pylist()
    days = ("2026-10-05", "2026-10-06")
    want = sum(c for c, at in zip(costs, starts, strict=True) if at[:10] in days)
    ws = open_workspace(tmp_path / "lake")
    found_in = fleet_bill(ws, first=date(2026, 10, 5), last=date(2026, 10, 6)).reconciliation
    assert found_in.effective_cost == want.quantize(cents)


def test_the_same_seed_gives_the_same_bill(tmp_path: Path) -> None:
    month = Month(rows=500, hosts=2, seed=3)
    assert bill(month)[0].equals(bill(month)[0])
    assert bill(month)[1] != bill(Month(rows=500, hosts=2, seed=4))[1]
