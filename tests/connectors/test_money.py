"""Bills, prices and events: every cent once, every doubt told."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.errors import InputError
from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.connectors.base import Options
from steptax.connectors.money.amounts import amount, amounts, tags
from steptax.connectors.money.offers import doubtful
from steptax.connectors.registry import connector

Shared = Callable[[str], Path]
EXAMPLES = Path(__file__).parent / "examples"
COSTS = {
    "billed_cost": "BilledCost",
    "effective_cost": "EffectiveCost",
    "list_cost": "ListCost",
    "contracted_cost": "ContractedCost",
}


class Read:
    """Everything that a source gave."""

    def __init__(self, kind: str, path: Path, **options: Any) -> None:
        self.batches = list(connector(kind).read(path, Options(**options)))
        stored = {b.table == "held_prices": b for b in self.batches}
        self.rows = [
            r for b in self.batches if b.table != "held_prices" for r in b.rows.to_pylist()
        ]
        self.held = stored[True].rows.to_pylist() if True in stored else []
        self.rejects = [r for b in self.batches for r in b.rejects]
        self.notes = [n for b in self.batches for n in b.notes]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Read]:
    def write_and_read(kind: str, text: str, **options: Any) -> Read:
        path = tmp_path / "table.csv"
        path.write_text(text)
        return Read(kind, path, **options)

    return write_and_read


def us(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc, arg-type]


class TestFocus:
    def test_the_published_sample(self, shared: Shared) -> None:
        path = shared("connectors/focus/focus_1.0_sample_rows_1-400.csv")
        with path.open(newline="") as handle:
            want = list(csv.DictReader(handle))
        got = Read("focus", path)
        assert not got.rejects
        assert len(got.rows) == len(want) == 400
        assert [row["line"].split("~")[0] for row in got.rows] == [row["Id"] for row in want]
        for ours, theirs in COSTS.items():
            assert [row[ours] for row in got.rows] == [Decimal(row[theirs]) for row in want]
        for row, theirs in zip(got.rows, want, strict=True):
            resource = theirs["ResourceId"]
            assert row["resource_id"] == (None if resource == "NULL" else resource)
            start = datetime.fromisoformat(theirs["ChargePeriodStart"]).replace(tzinfo=UTC)
            assert row["charge_start_us"] == int(start.timestamp()) * 1_000_000
            assert (row["tags"] is None) == (theirs["Tags"] == "NULL")
        assert sum(row["commitment_status"] == "Used" for row in got.rows) == 4
        assert any("billed cost 6.96, effective cost 5.00" in note for note in got.notes)

    HEAD = (
        "ProviderName,BillingAccountId,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart,"
        "ChargePeriodEnd,BilledCost,EffectiveCost,BillingCurrency,ChargeCategory,ResourceId\n"
    )

    def row(self, billed: str, effective: str, resource: str = "r", what: str = "Usage") -> str:
        return (
            "AWS,1,2026-03-01T00:00:00Z,2026-04-01T00:00:00Z,2026-03-01 00:00:00 UTC,"
            f"2026-03-01T01:00Z,{billed},{effective},USD,{what},{resource}\n"
        )

    def test_credits_and_tiny_amounts_stay_exact(self, read: Callable[..., Read]) -> None:
        got = read(
            "focus",
            self.HEAD
            + self.row("-12.345678901234", "-1.5E-7", what="credit")
            + self.row("NULL", "0.0000000000005")
            + self.row('"1,234.50"', "0"),
        )
        assert [(r["billed_cost"], r["effective_cost"]) for r in got.rows] == [
            (Decimal("-12.345678901234"), Decimal("-0.00000015")),
            (None, Decimal("0E-12")),
            (Decimal("1234.5"), Decimal(0)),
        ]
        assert got.rows[0]["charge_category"] == "Credit"
        assert got.rows[0]["charge_start_us"] == us(2026, 3, 1)
        assert got.rows[0]["charge_end_us"] == us(2026, 3, 1, 1)
        assert got.rows[0]["invoice"] == "1 2026-03"
        assert any("rounded to 12 (1)" in note for note in got.notes)

    def test_what_is_no_charge_is_rejected(self, read: Callable[..., Read]) -> None:
        got = read(
            "focus",
            self.HEAD
            + self.row("1", "1")
            + self.row("one", "1")
            + self.row("", "NULL")
            + self.row("1", "1").replace("2026-03-01T01:00Z", "2026-02-01T00:00Z"),
        )
        assert [(r.row, r.field) for r in got.rejects] == [
            (3, "billed_cost"),
            (4, "billed_cost"),
            (5, "charge_end"),
        ]

    def test_a_currency_has_one_spelling(self, read: Callable[..., Read]) -> None:
        words = ["EUR", "eur", " Eur ", "€", "usd", "$"]
        lines = [f"1,1,{word},r{k}" for k, word in enumerate(words)]
        got = read(
            "focus", "\n".join(["BilledCost,EffectiveCost,BillingCurrency,ResourceId", *lines])
        )
        assert [r["currency"] for r in got.rows] == ["EUR"] * 4 + ["USD", "$"]
        assert "sums in EUR: billed cost 4.00" in " ".join(got.notes)

    def test_equal_lines_are_all_counted_and_stay_who_they_are(
        self, read: Callable[..., Read], tmp_path: Path
    ) -> None:
        first = self.HEAD + self.row("1", "1") * 2
        got = read("focus", first)
        ids = [row["line"] for row in got.rows]
        assert len(set(ids)) == 2
        longer = read("focus", self.HEAD + self.row("9", "9", "new") + self.row("1", "1") * 2)
        assert {row["line"] for row in longer.rows} > set(ids)

        lake = Lake(tmp_path / "lake", create=True)
        small, large = tmp_path / "a.csv", tmp_path / "b.csv"
        small.write_text(first)
        large.write_text(self.HEAD + self.row("9", "9", "new") + self.row("1", "1") * 2)
        assert ingest_file(lake, "focus", small, Options()).accepted["charges"] == 2
        assert ingest_file(lake, "focus", large, Options()).accepted["charges"] == 1

    def test_a_line_that_repeats_its_id_is_rejected(self, read: Callable[..., Read]) -> None:
        head = "Id,ProviderName,BilledCost,EffectiveCost\n"
        got = read("focus", head + "7,AWS,1,1\n7,AWS,1,1\n7,AWS,2,2\n")
        assert [(r["line"][:2], r["billed_cost"]) for r in got.rows] == [("7~", 1), ("7~", 2)]
        assert len({r["line"] for r in got.rows}) == 2
        assert [(r.row, r.field) for r in got.rejects] == [(3, "line")]

    def test_parquet_with_types(self, tmp_path: Path) -> None:
        path = tmp_path / "focus.parquet"
        stamp = pa.timestamp("us", tz="UTC")
        pairs = pa.map_(pa.string(), pa.string())
        pq.write_table(
            pa.table(
                {
                    "ProviderName": ["GCP", "GCP"],
                    "BilledCost": pa.array([Decimal("0.123456789"), None], pa.decimal128(38, 9)),
                    "EffectiveCost": pa.array([0.1, 2.0]),
                    "ChargePeriodStart": pa.array([us(2026, 3, 1), None], stamp),
                    "Tags": pa.array([[("team", "red")], None], pairs),
                }
            ),
            path,
        )
        got = Read("focus", path)
        assert [r["billed_cost"] for r in got.rows] == [Decimal("0.123456789"), None]
        assert [r["effective_cost"] for r in got.rows] == [Decimal("0.1"), Decimal(2)]
        assert [r["charge_start_us"] for r in got.rows] == [us(2026, 3, 1), None]
        assert [r["tags"] for r in got.rows] == ['{"team": "red"}', None]

    def test_another_table_is_refused(self, read: Callable[..., Read]) -> None:
        with pytest.raises(InputError, match="is no bill as FOCUS writes it"):
            read("focus", "a,b\n1,2\n")

    def test_the_ledger_divides_it_to_the_cent(
        self, tmp_path: Path, steptax: Callable[..., Any]
    ) -> None:
        """Two jobs on two of three nodes over a month's end, a tax and an unused commitment."""
        start = us(2026, 3, 31, 22)
        hour, minute = 3_600_000_000, 60_000_000
        steps = tmp_path / "steps.csv"
        lines = ["job_id,step,rank,host,start_us,duration_us\n"]
        for job, hosts, at in (("red", "ab", start), ("blue", "a", start + 2 * hour)):
            lines += [
                f"{job},{k},{rank},node-{hosts[rank % len(hosts)]},{at + k * minute},{minute}\n"
                for k in range(100)
                for rank in range(4)
            ]
        steps.write_text("".join(lines))
        bill = tmp_path / "bill.csv"
        rows = [self.HEAD.replace("\n", ",CommitmentDiscountStatus\n")]
        want = Decimal(0)
        for at in range(4):
            for node, cost in (("a", "10.01"), ("b", "7.77"), ("c", "3.333333")):
                begin = datetime.fromtimestamp((start + at * hour) / 1e6, UTC).isoformat()
                end = datetime.fromtimestamp((start + (at + 1) * hour) / 1e6, UTC).isoformat()
                month = "2026-03-01,2026-04-01" if at < 2 else "2026-04-01,2026-05-01"
                rows.append(
                    f"AWS,1,{month},{begin},{end},{cost},{cost},USD,Usage,vm/node-{node},\n"
                )
                want += Decimal(cost)
        rows.append("AWS,1,2026-03-01,2026-04-01,2026-03-31,2026-04-01,5,5,USD,Tax,,\n")
        rows.append("AWS,1,2026-03-01,2026-04-01,2026-03-31,2026-04-01,0,2.5,USD,Usage,,Unused\n")
        bill.write_text("".join(rows))
        steptax("ingest", "steps", str(steps))
        steptax("ingest", "focus", str(bill))
        want += Decimal("7.5")
        data = steptax("ledger", "--by", "month")
        found = data["reconciliation"]
        assert found["currency"] == "USD"
        assert Decimal(str(found["effective_cost"])) == want.quantize(Decimal("0.01"))
        parts = ("jobs_cost", "unallocated_cost", "unexplained_cost")
        assert sum(Decimal(str(found[name])) for name in parts) == Decimal(
            str(found["effective_cost"])
        )
        # red holds half of node-a and all of node-b for 100 minutes, blue all of node-a.
        held = Decimal(100) / 60
        cent = Decimal("0.01")
        jobs = held * (Decimal("10.01") / 2 + Decimal("7.77") + Decimal("10.01"))
        assert abs(Decimal(str(found["jobs_cost"])) - jobs) <= cent
        # Of node-c nobody is known to have run anything, and a tax has no resource.
        assert abs(Decimal(str(found["unexplained_cost"])) - (4 * Decimal("3.333333") + 5)) <= cent
        groups = {group["name"]: group for group in data["groups"]}
        assert {"2026-03", "2026-04"} <= set(groups)


class TestAws:
    def test_a_report_of_two_instances(self, shared: Shared) -> None:
        path = shared("connectors/aws_cur/aws_cur_ondemand_p4d_m5.csv")
        with path.open(newline="") as handle:
            want = list(csv.DictReader(handle))
        got = Read("aws-cur", path)
        assert not got.rejects
        assert len(got.rows) == len(want) == 48
        for row, theirs in zip(got.rows, want, strict=True):
            assert row["billed_cost"] == Decimal(theirs["lineItem/UnblendedCost"])
            assert row["effective_cost"] == row["billed_cost"]
            assert row["list_cost"] == Decimal(theirs["pricing/publicOnDemandCost"])
            assert row["resource_id"] == theirs["lineItem/ResourceId"]
            start = datetime.fromisoformat(theirs["lineItem/UsageStartDate"])
            assert row["charge_start_us"] == int(start.timestamp()) * 1_000_000
            assert row["charge_end_us"] == row["charge_start_us"] + 3_600_000_000
        assert sum(row["effective_cost"] for row in got.rows) == Decimal("529.287408")
        assert json.loads(got.rows[0]["tags"])["team"] == "research"
        assert got.rows[0]["invoice"] == "111111111111 2026-06"

    def test_commitments_are_amortised(self) -> None:
        got = Read("aws-cur", EXAMPLES / "aws-cur.csv")
        told = [(r["billed_cost"], r["effective_cost"], r["commitment_status"]) for r in got.rows]
        assert told == [
            (Decimal("98.32"), Decimal("98.32"), None),
            (Decimal("98.32"), Decimal("61.5"), "Used"),
            (Decimal("-98.32"), 0, None),
            (70, Decimal("8.5"), "Unused"),
            (0, Decimal("55.25"), "Used"),
            (100, Decimal("44.75"), "Unused"),
            (Decimal("7.25"), Decimal("7.25"), None),
        ]
        categories = [r["charge_category"] for r in got.rows]
        assert categories == ["Usage"] * 3 + ["Purchase", "Usage", "Purchase", "Tax"]

    def test_names_of_cur_2(self, read: Callable[..., Read]) -> None:
        got = read(
            "aws-cur",
            "line_item_line_item_type,line_item_unblended_cost,line_item_resource_id,"
            "savings_plan_savings_plan_effective_cost,resource_tags\n"
            'SavingsPlanCoveredUsage,3,i-1,2.5,"{""user_team"": ""red""}"\n'
            "SavingsPlanCoveredUsage,3,i-1,,\n",
        )
        assert [r["effective_cost"] for r in got.rows] == [Decimal("2.5"), None]
        assert got.rows[0]["tags"] == '{"user_team": "red"}'

    def test_a_report_without_types_is_refused(self, read: Callable[..., Read]) -> None:
        with pytest.raises(InputError, match="type of a line item"):
            read("aws-cur", "lineItem/UnblendedCost\n3\n")


class TestAzure:
    @pytest.mark.parametrize(
        ("name", "billed", "day", "currency", "resource"),
        [
            ("values_VirtualMachine", "4", (2021, 2, 1), None, "aks-nodepool1-12345678-vmss"),
            ("headersets_Enterprise", "0", (2021, 2, 2), "CAD", "aks-defaultpool-12345678-vmss"),
            ("headersets_EnterpriseCamel", "0.012", (2021, 2, 2), "USD", "storename"),
        ],
    )
    def test_real_headers(
        self,
        shared: Shared,
        name: str,
        billed: str,
        day: tuple[int, int, int],
        currency: str | None,
        resource: str,
    ) -> None:
        got = Read("azure-cost", shared(f"connectors/azure_billing/{name}.csv"))
        assert not got.rejects
        (row,) = got.rows
        assert row["billed_cost"] == Decimal(billed)
        assert row["charge_start_us"] == us(*day)
        assert row["charge_end_us"] == us(*day) + 86_400_000_000
        assert row.get("currency") == currency
        assert row["resource_id"].endswith("/" + resource)

    def test_tags_without_braces(self, shared: Shared) -> None:
        got = Read("azure-cost", shared("connectors/azure_billing/headersets_Enterprise.csv"))
        found = json.loads(got.rows[0]["tags"])
        assert found["poolName"] == "defaultpool"
        assert got.rows[0]["effective_cost"] is None  # a reservation covers it

    def test_actual_and_amortised_are_told_by_the_name(self, tmp_path: Path) -> None:
        text = (EXAMPLES / "azure-cost.csv").read_text()
        actual, amortised = tmp_path / "cost.csv", tmp_path / "AmortizedCost.csv"
        actual.write_text(text)
        amortised.write_text(text)
        got = Read("azure-cost", actual)
        assert [(r["billed_cost"], r["effective_cost"]) for r in got.rows] == [
            (Decimal("27.2"), Decimal("27.2")),
            (0, None),
            (9000, None),
            (Decimal("-5.5"), Decimal("-5.5")),
        ]
        assert [r["charge_category"] for r in got.rows][2:] == ["Purchase", "Adjustment"]
        late = Read("azure-cost", amortised)
        assert [r["billed_cost"] for r in late.rows] == [None] * 4
        assert late.rows[0]["effective_cost"] == Decimal("27.2")


class TestAmounts:
    @given(st.decimals(-(10**12), 10**12, places=12, allow_nan=False, allow_infinity=False))
    def test_twelve_places_come_back_exactly(self, value: Decimal) -> None:
        for text in (f"{value:f}", f"{value:E}", f"  {value:f} "):
            got = amounts(pa.array([text, "NULL", None]))
            assert got.cells.values.to_pylist() == [value, None, None]
            assert got.rounded == 0
            assert not got.cells.bad.any()

    @given(st.floats(-1e6, 1e6))
    def test_floats_keep_the_digits_that_they_show(self, value: float) -> None:
        (got,) = amounts(pa.array([value])).cells.values.to_pylist()
        assert abs(Fraction(got) - Fraction(repr(value))) <= Fraction(1, 2 * 10**12)

    @pytest.mark.parametrize("text", ["", "x", "1.2.3", "1e999", "$5", "--1", "1,23", "9" * 30])
    def test_what_is_no_amount(self, text: str) -> None:
        assert amount(text) is None

    @pytest.mark.parametrize(
        ("told", "want"),
        [
            ('{"b": 1, "a": "x"}', '{"a": "x", "b": 1}'),
            ('"a": "x","b": "y"', '{"a": "x", "b": "y"}'),
            ('[{"key": "a", "value": "x"}]', '{"a": "x"}'),
            ("{'a': 'x'}", '{"a": "x"}'),
            ("a=x", '{"text": "a=x"}'),
            ("{}", None),
            ("NULL", None),
        ],
    )
    def test_tags_of_every_cloud(self, told: str, want: str | None) -> None:
        assert tags(pa.array([told])).values.to_pylist() == [want]


class TestPrices:
    HEAD = (
        "provider,gpu,form_factor,region,pricing,gpu_count,usd_per_hour,usd_per_gpu_hour,observed\n"
    )

    def test_doubtful_prices_are_held_until_a_person_accepts(
        self, read: Callable[..., Read]
    ) -> None:
        text = (
            self.HEAD
            + "A,H100,SXM,us,on_demand,8,24,,2026-11-01\n"
            + "B,H100,SXM,us,spot,1,,1.5,2026-11-01\n"
            + "C,H100,PCIe,eu,on-demand,1,,2.5,2026-11-01\n"
            + "D,H100,SXM,eu,on-demand,1,,0,2026-11-01\n"
            + "E,H100,SXM,eu,on-demand,1,,25,2026-11-01\n"
            + "F,H100,SXM,eu,on-demand,1,,0.25,2026-11-01\n"
            + "G,B200,SXM,eu,on-demand,1,,20,2026-11-01\n"
        )
        got = read("prices", text)
        assert {r["provider"]: r["usd_per_gpu_hour"] for r in got.rows} == {
            "A": 3,
            "B": Decimal("1.5"),
            "C": Decimal("2.5"),
            "G": 20,
        }
        assert {r["term"] for r in got.rows} == {"on-demand", "spot"}
        assert [r.row for r in got.rejects] == [5, 6, 7]
        assert all("held for a person to accept" in r.reason for r in got.rejects)
        assert {(r["provider"], r["usd_per_gpu_hour"]) for r in got.held} == {
            ("D", Decimal(0)),
            ("E", Decimal(25)),
            ("F", Decimal("0.25")),
        }
        taken = read("prices", text, extra={"accept_prices": "ann"})
        assert len(taken.rows) == 7
        assert not taken.held
        accepted = {r["provider"]: (r["accepted_by"], r["held_because"]) for r in taken.rows}
        assert accepted["D"] == ("ann", "a price of 0")
        assert accepted["A"] == (None, None)
        assert not taken.rejects

    def test_a_price_of_a_day_to_come_is_held(self, read: Callable[..., Read]) -> None:
        text = (
            self.HEAD + "A,H100,SXM,us,spot,1,,2,9999-01-01\nB,H100,SXM,us,spot,1,,2,2026-01-01\n"
        )
        got = read("prices", text)
        assert [r["provider"] for r in got.rows] == ["B"]
        assert [r["held_because"] for r in got.held] == ["a price of a day to come, 9999-01-01"]
        # Where the day is a new one it may be that of tomorrow here.
        days = [f"2026-03-0{day}" for day in (1, 2, 3)]
        offers = [
            {"gpu_model": "A", "usd_per_gpu_hour": Decimal(2), "observed_on": d} for d in days
        ]
        assert list(doubtful(offers, today=date(2026, 3, 1))) == [2]

    def test_the_command_accepts_them(self, tmp_path: Path, steptax: Callable[..., Any]) -> None:
        path = tmp_path / "offers.csv"
        path.write_text("provider,gpu_model,usd_per_gpu_hour\nA,H100,2\nB,H100,0\n")
        given_day = ("--observed-on", "2026-11-01")
        first = steptax("ingest", "prices", str(path), *given_day)
        assert first["tables"]["prices"] == {"accepted": 1, "rejected": 1, "stored_before": 0}
        again = steptax("ingest", "prices", str(path), *given_day, "--accept-prices")
        assert again["tables"]["prices"]["accepted"] == 2
        assert again["tables"]["prices"]["rejected"] == 0

    def test_real_offers(self, shared: Shared) -> None:
        path = shared("procurement/gpu_offers_extract.csv")
        with path.open(newline="") as handle:
            want = list(csv.DictReader(handle))
        got = Read("prices", path, extra={"observed_on": "2026-09-29"})
        assert len(got.rows) + len(got.rejects) == len(want) == 85
        prices = {(r["provider"], r["region"], Decimal(r["usd_per_gpu_hour"])) for r in want}
        for row in got.rows:
            assert (row["provider"], row["region"], row["usd_per_gpu_hour"]) in prices
        lambda_h100 = [r for r in got.rows if (r["provider"], r["gpu_model"]) == ("Lambda", "H100")]
        assert {r["form_factor"]: r["usd_per_gpu_hour"] for r in lambda_h100} == {
            "PCIe": Decimal("3.29"),
            "SXM": Decimal("3.99"),
        }
        blank = Read("prices", path)
        assert sum("--observed-on" in r.reason for r in blank.rejects) == sum(
            not r["observed"] for r in want
        )

    @pytest.mark.parametrize(
        ("line", "field"),
        [
            ("A,H100,SXM,us,spot,1,,-1,2026-11-01", "usd_per_gpu_hour"),
            ("A,H100,SXM,us,spot,0,4,,2026-11-01", "gpu_count"),
            ("A,H100,SXM,us,spot,,4,,2026-11-01", "usd_per_gpu_hour"),
            (",H100,SXM,us,spot,1,,1,2026-11-01", "provider"),
            ("A,H100,SXM,us,spot,1,,1,", "observed_on"),
            ("A,H100,SXM,us,spot,1,,1,soon", "observed_on"),
        ],
    )
    def test_what_is_no_offer(self, read: Callable[..., Read], line: str, field: str) -> None:
        got = read("prices", self.HEAD + line + "\n")
        assert not got.rows
        assert [(r.row, r.field) for r in got.rejects] == [(2, field)]

    def test_a_catalogue_of_skypilot(self, read: Callable[..., Read]) -> None:
        text = (
            "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region\n"
            "gpu_8x_h100,H100,8,208,1800,23.92,us-east-1\n"
            "cpu_4x,,,4,16,0.2,us-east-1\n"
        )
        extra = {"observed_on": "2026-11-01", "provider": "Lambda"}
        got = read("prices", text, extra=extra)
        assert [(r["provider"], r["gpu_model"], r["usd_per_gpu_hour"]) for r in got.rows] == [
            ("Lambda", "H100", Decimal("2.99"))
        ]
        assert [(r.row, r.field) for r in got.rejects] == [(3, "gpu_model")]
        assert got.rows[0]["term"] == "on-demand"
        with pytest.raises(InputError, match="no column for provider"):
            read("prices", text)

    def test_spot_prices_of_a_catalogue_are_offers_too(self, read: Callable[..., Read]) -> None:
        text = (
            "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,"
            "SpotPrice,Region,AvailabilityZone\n"
            "p5.48xlarge,H100,8.0,192,2048,x,55.04,20.0,us-east-1,us-east-1a\n"
            "p5.48xlarge,H100,8.0,192,2048,x,55.04,,us-west-2,us-west-2a\n"
            "p4d.24xlarge,A100,8.0,96,1152,x,,16.0,us-east-1,us-east-1a\n"
            "p4d.24xlarge,A100,8.0,96,1152,x,,,us-east-2,us-east-2a\n"
            "p4d.24xlarge,A100,8.0,96,1152,x,1,cheap,us-east-2,us-east-2a\n"
        )
        got = read("prices", text, extra={"observed_on": "2026-11-01", "provider": "AWS"})
        assert {
            (r["gpu_model"], r["region"], r["term"], r["usd_per_gpu_hour"]) for r in got.rows
        } == {
            ("H100", "us-east-1", "on-demand", Decimal("6.88")),
            ("H100", "us-east-1", "spot", Decimal("2.5")),
            ("H100", "us-west-2", "on-demand", Decimal("6.88")),
            ("A100", "us-east-1", "spot", Decimal(2)),
        }
        assert [(r.row, r.field) for r in got.rejects] == [
            (5, "usd_per_gpu_hour"),
            (6, "spot_usd_per_hour"),
        ]

    def test_a_price_that_may_be_of_either_is_asked_about(self, read: Callable[..., Read]) -> None:
        text = "provider,gpu_model,gpus,price,date\nA,H100,8,24,2026-11-01\n"
        with pytest.raises(InputError, match="of a device or of the whole instance"):
            read("prices", text)
        got = read("prices", text, mapping={"usd_per_hour": "price"})
        assert [r["usd_per_gpu_hour"] for r in got.rows] == [3]

    def test_other_currencies_are_not_converted(self, read: Callable[..., Read]) -> None:
        head = "provider,gpu_model,price,currency,date\n"
        words = {"A": "USD", "B": "EUR", "C": " usd ", "D": "$", "E": "€", "F": "US$"}
        rows = "".join(f"{who},H100,2,{word},2026-11-01\n" for who, word in words.items())
        got = read("prices", head + rows)
        assert [r["provider"] for r in got.rows] == ["A", "C", "D", "F"]
        assert "no exchange rate" in got.rejects[0].reason

    @given(st.lists(st.decimals("0.5", "4.9", places=2), min_size=1, max_size=20))
    def test_prices_within_a_factor_of_ten_are_never_held(self, prices: list[Decimal]) -> None:
        offers = [{"gpu_model": "H100", "usd_per_gpu_hour": price} for price in prices]
        assert not doubtful(offers)
        wrong = [*offers, {"gpu_model": "H100", "usd_per_gpu_hour": Decimal(50)}]
        assert len(prices) in doubtful(wrong)


class TestEvents:
    HEAD = "job_id,attempt,event,time,end,detail\n"

    def test_rows(self, read: Callable[..., Read]) -> None:
        got = read(
            "events",
            self.HEAD
            + "j,1,Checkpoint-Save,2026-03-01T01:00:00Z,2026-03-01T02:01:30+01:00,step=100\n"
            + "j,,crash,2026-03-01 02:00:00,,Xid 79\n",
        )
        assert [(r["attempt"], r["kind"], r["start_us"], r["end_us"]) for r in got.rows] == [
            (1, "checkpoint_save", us(2026, 3, 1, 1), us(2026, 3, 1, 1, 1, 30)),
            (0, "failure", us(2026, 3, 1, 2), None),
        ]
        assert [r["detail"] for r in got.rows] == ["step=100", "Xid 79"]

    def test_what_is_no_event(self, read: Callable[..., Read]) -> None:
        got = read(
            "events",
            self.HEAD
            + "j,0,falure,2026-03-01T01:00:00Z,,\n"
            + "j,0,failure,never,,\n"
            + "j,0,eval,2026-03-01T01:00:00Z,2026-03-01T00:00:00Z,\n"
            + ",0,eval,2026-03-01T01:00:00Z,,\n",
        )
        assert [(r.row, r.field) for r in got.rejects] == [
            (2, "kind"),
            (3, "start"),
            (4, "end"),
            (5, "job_id"),
        ]
        assert "is it failure?" in got.rejects[0].reason

    def test_the_job_that_the_person_names(self, read: Callable[..., Read]) -> None:
        got = read("events", "kind,start_s\neval,1772323200\n", job_id="mine", attempt=2)
        assert [(r["job_id"], r["attempt"], r["start_us"]) for r in got.rows] == [
            ("mine", 2, 1772323200 * 1_000_000)
        ]
