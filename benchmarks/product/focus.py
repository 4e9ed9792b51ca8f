"""How fast a month's bill is read and divided: ``python -m steptax.benchmarks.product.focus``.

The bill is made up: a FOCUS 1.2 month of a cluster of hosts and everything around it. What it adds
up to is known in whole units of the tenth decimal place before a file is written, so that what is
read, and what the ledger gives to jobs, can be held against it to the cent. Each reading and each
ledger is a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import calendar
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from steptax.benchmarks.product import flags

HOUR_US = 3_600_000_000
#: Decimal places of the money in the file.
PLACES = 10
_UNIT = 10**PLACES
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Month:
    """A month to make up: ``rows`` charges, of which each host has one per hour."""

    rows: int = 1_000_000
    hosts: int = 256
    gpus_per_host: int = 8
    jobs: int = 64
    year: int = 2026
    month: int = 10
    seed: int = 0

    @property
    def hours(self) -> int:
        """Hours of the month."""
        return calendar.monthrange(self.year, self.month)[1] * 24

    @property
    def start_us(self) -> int:
        """Its first moment."""
        return int(datetime(self.year, self.month, 1, tzinfo=UTC).timestamp()) * 1_000_000


@dataclass(frozen=True)
class Truth:
    """What the made-up bill adds up to, exactly, in the currency of the bill."""

    rows: int
    billed: Decimal
    effective: Decimal
    listed: Decimal
    contracted: Decimal


def bill(month: Month) -> tuple[pa.Table, Truth]:
    """The charges of ``month`` in a random order, and their sums.

    Of each host one charge per hour: half of them under a commitment (nothing is billed, the
    amortised part counts), each at a price of its own. The rest are disks, traffic, storage, a few
    credits and taxes, unused commitments and the purchase that pays for them.
    """
    dice = np.random.default_rng(month.seed)
    n = month.rows
    of_hosts = min(n, month.hosts * month.hours)
    kind = np.full(n, 1, np.int64)
    kind[:of_hosts] = 0
    rest = n - of_hosts
    if rest > 100:
        kind[of_hosts:] = dice.choice([1, 2, 3, 4, 5], rest, p=[0.5, 0.4, 0.05, 0.049, 0.001])
    place = np.arange(n)
    host = np.where(kind == 0, place // month.hours, dice.integers(0, month.hosts, n))
    hour = np.where(kind == 0, place % month.hours, dice.integers(0, month.hours, n))
    rate = dice.integers(20 * _UNIT, 100 * _UNIT, month.hosts)  # an hour of a host, listed
    committed = (kind == 0) & (host % 2 == 0)
    listed: Ints = np.where(kind == 0, rate[host], dice.integers(1, _UNIT // 4, n))
    listed = np.where(np.isin(kind, (3, 4, 5)), 0, listed)
    contracted: Ints = listed - listed // 10
    effective: Ints = np.where(committed, listed * 6 // 10, contracted)
    billed: Ints = np.where(committed, 0, effective)
    other = dice.integers(1, 2 * _UNIT, n)
    effective = np.select([kind == 3, kind == 4, kind == 5], [-other, other, 9 * other], effective)
    billed = np.select([kind == 3, kind == 4, kind == 5], [-other, 0, 9 * other], billed)
    order = dice.permutation(n)
    costs = {
        "BilledCost": billed[order],
        "EffectiveCost": effective[order],
        "ListCost": listed[order],
        "ContractedCost": contracted[order],
    }
    table = _columns(month, kind[order], host[order], hour[order], committed[order], costs, dice)
    return table, Truth(n, *(_sum(values) for values in costs.values()))


def _columns(
    month: Month,
    kind: Ints,
    host: Ints,
    hour: Ints,
    committed: npt.NDArray[np.bool_],
    costs: dict[str, Ints],
    dice: np.random.Generator,
) -> pa.Table:
    n = len(kind)
    start = month.start_us + hour * HOUR_US
    end = month.start_us + month.hours * HOUR_US
    names = np.array([f"arn:aws:ec2:us-east-1:1:instance/node-{h:04d}" for h in range(month.hosts)])
    disks = np.array([f"arn:aws:ec2:us-east-1:1:volume/vol-{h:08x}" for h in range(month.hosts)])
    resource_id = np.select([kind == 0, kind == 1], [names[host], disks[host]], "")
    teams = np.array(
        [
            json.dumps({"team": f"team-{t}", "environment": "prod", "cost-center": f"cc {t}, a"})
            for t in range(8)
        ]
    )
    tags = np.where(kind <= 2, teams[host % 8], "")
    status = np.select([committed, kind == 4], ["Used", "Unused"], "")

    def words(*choices: str) -> pa.Array:
        return pa.array(choices).take(pa.array(kind))

    def same(text: str | None) -> pa.Array:
        return pa.repeat(pa.scalar(text, pa.string()), n)

    def when(us: Ints | int) -> pa.Array:
        at = np.broadcast_to(np.asarray(us, np.int64), (n,))
        return pc.strftime(pa.array(at, pa.timestamp("us", "UTC")), "%Y-%m-%dT%H:%M:%SZ")

    money = {name: _decimal(values) for name, values in costs.items()}
    return pa.table(
        {
            "BillingAccountId": same("123456789012"),
            "BillingAccountName": same("Research"),
            "BillingCurrency": same("USD"),
            "BillingPeriodStart": when(month.start_us),
            "BillingPeriodEnd": when(end),
            "ChargePeriodStart": when(start),
            "ChargePeriodEnd": when(start + HOUR_US),
            **money,
            "ChargeCategory": words("Usage", "Usage", "Usage", "Credit", "Usage", "Tax"),
            "ChargeClass": same(None),
            "ChargeDescription": words(
                "$98.32 per On Demand Linux p5.48xlarge Instance Hour",
                '$0.08 per GB-month of gp3, "provisioned"',
                "$0.09 per GB, first 10 TB / month",
                "Credit",
                "Savings plan, not used",
                "Tax",
            ),
            "ChargeFrequency": same("Usage-Based"),
            "CommitmentDiscountStatus": _words(status),
            "ConsumedQuantity": pa.array(dice.integers(1, 1000, n)),
            "ConsumedUnit": words("Hours", "GB", "GB", "Units", "Hours", "Units"),
            "InvoiceId": same("INV-1"),
            "InvoiceIssuerName": same("Amazon Web Services, Inc."),
            "PricingCategory": pa.array(np.where(committed, "Committed", "Standard")),
            "ProviderName": same("AWS"),
            "PublisherName": same("Amazon Web Services, Inc."),
            "RegionId": same("us-east-1"),
            "RegionName": same("US East (N. Virginia)"),
            "ResourceId": _words(resource_id),
            "ResourceType": words("instance", "volume", "traffic", "", "", ""),
            "ServiceCategory": words("Compute", "Storage", "Networking", "Other", "Other", "Other"),
            "ServiceName": words("Amazon EC2", "Amazon EBS", "Amazon VPC", "Other", "EC2", "Tax"),
            "SkuId": words("P5", "GP3", "OUT", "CREDIT", "SP", "TAX"),
            "SkuPriceId": words("P5.1", "GP3.1", "OUT.1", "CREDIT.1", "SP.1", "TAX.1"),
            "SubAccountId": same("210987654321"),
            "SubAccountName": same("training"),
            "Tags": _words(tags),
            "x_Operation": words("RunInstances", "CreateVolume", "Out", "", "", ""),
            "x_UsageType": words("BoxUsage:p5.48xlarge", "EBS:gp3", "Bytes", "", "", ""),
        }
    )


def _words(values: Any) -> pa.Array:
    """Text, in which nothing is null."""
    text = pa.array(values, pa.string())
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def _decimal(units: Ints) -> pa.Array:
    """Whole units of the last decimal place as decimals, without a Python object per row."""
    wide = np.empty((len(units), 2), np.int64)
    wide[:, 0] = units
    wide[:, 1] = units >> 63
    kind = pa.decimal128(38, PLACES)
    return pa.Array.from_buffers(kind, len(units), [None, pa.py_buffer(wide.tobytes())])


def _sum(units: Ints) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return Decimal(sum(units.tolist())).scaleb(-PLACES)


def write(table: pa.Table, path: Path) -> None:
    """``table`` as CSV or Parquet, by the name of ``path``."""
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        pacsv.write_csv(table, path, pacsv.WriteOptions(quoting_style="needed"))


def place_jobs(month: Month, root: Path) -> None:
    """Jobs on the hosts of ``month``: each host is busy for all but the last tenth of it."""
    from steptax.app.lake import Lake

    lake = Lake(root, create=True)
    held = month.hours * 9 // 10
    jobs, ranks = [], []
    per = max(1, month.hosts // month.jobs)
    for k in range(min(month.jobs, month.hosts)):
        hosts = list(range(k * per, min((k + 1) * per, month.hosts)))
        world = len(hosts) * month.gpus_per_host
        # It begins in the middle of an hour: its charge belongs to it in part.
        begin = month.start_us + (k % 7) * HOUR_US + HOUR_US // 3
        end = month.start_us + held * HOUR_US
        team = f"team-{k % 8}"
        jobs.append(
            {"job_id": f"job-{k:03d}", "team": team, "state": "completed", "world_size": world}
            | {"start_us": begin, "end_us": end}
        )
        ranks += [
            {"job_id": f"job-{k:03d}", "rank": r, "host": f"node-{hosts[r // 8]:04d}"}
            for r in range(len(hosts) * 8)
        ]
    lake.append("jobs", pa.Table.from_pylist(jobs), source="benchmark")
    lake.append("ranks", pa.Table.from_pylist(ranks), source="benchmark")


# -- measuring ------------------------------------------------------------------------------------


def read_file(path: Path, lake: Path) -> dict[str, Any]:
    """Ingest ``path`` in this process: seconds, peak memory, and what the file adds up to."""
    from steptax.app.ingest import ingest_file
    from steptax.app.lake import Lake
    from steptax.connectors.base import Options

    store = Lake(lake, create=True)
    began, cpu = time.perf_counter(), time.process_time()
    found = ingest_file(store, "focus", path, Options())
    seconds = time.perf_counter() - began
    cpu_s = time.process_time() - cpu
    return {
        "accepted": found.accepted.get("charges", 0),
        "rejected": sum(found.rejected.values()),
        "seconds": seconds,
        "cpu_s": cpu_s,
        "rows_per_s": found.accepted.get("charges", 0) / seconds,
        "rows_per_cpu_s": found.accepted.get("charges", 0) / cpu_s,
        "peak_mb": _peak_mb(),
        "notes": [note for note in found.notes if note.startswith("sums")],
    }


def divide(lake: Path, by: str) -> dict[str, Any]:
    """The whole bill of ``lake`` in this process."""
    from steptax.app.views.fleet.bill import fleet_bill
    from steptax.app.views.workspace import open_workspace

    began, cpu = time.perf_counter(), time.process_time()
    view = fleet_bill(open_workspace(lake), by=by)
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    found = view.reconciliation
    return {
        "by": by,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "peak_mb": _peak_mb(),
        "billed": str(found.billed_cost),
        "effective": str(found.effective_cost),
        "jobs": str(found.jobs_cost),
        "unallocated": str(found.unallocated_cost),
        "unexplained": str(found.unexplained_cost),
        "total": None if view.total is None else str(view.total.cost),
    }


def _peak_mb() -> float:
    """Largest resident memory of this process, MB; what it was started from does not count."""
    status = Path("/proc/self/status")
    if status.exists():  # elsewhere a process inherits the peak of the one that started it
        line = next(n for n in status.read_text().splitlines() if n.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _alone(*arguments: str) -> dict[str, Any]:
    """What this module prints when it is run with ``arguments`` in a process of its own."""
    command = [sys.executable, "-m", "steptax.benchmarks.product.focus", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(month: Month, folder: Path) -> dict[str, Any]:
    """Write the bill of ``month`` both ways, read both, divide it by team and by day.

    ``again`` is the same month delivered once more, in the other format: every line of it is held
    against the stored ones, and nothing may be added.
    """
    table, truth = bill(month)
    known = {name: str(value) for name, value in asdict(truth).items()}
    out: dict[str, Any] = {"month": asdict(month), "truth": known}
    for name in ("csv", "parquet"):
        path, lake = folder / f"focus.{name}", folder / f"lake-{name}"
        write(table, path)
        place_jobs(month, lake)
        out[name] = _alone("--read", str(path), "--lake", str(lake))
        out[name]["file_mb"] = path.stat().st_size / 1e6
    lake = folder / "lake-csv"
    out["again"] = _alone("--read", str(folder / "focus.parquet"), "--lake", str(lake))
    out["ledgers"] = [_alone("--divide", by, "--lake", str(lake)) for by in ("team", "day")]
    cents = Decimal("0.01")
    out["reconciles"] = out["again"]["accepted"] == 0 and all(
        Decimal(ledger["effective"]) == truth.effective.quantize(cents)
        and Decimal(ledger["billed"]) == truth.billed.quantize(cents)
        and sum(Decimal(ledger[part]) for part in ("jobs", "unallocated", "unexplained"))
        == Decimal(ledger["effective"])
        for ledger in out["ledgers"]
    )
    return out


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=flags.count, default=Month.rows)
    parser.add_argument("--hosts", type=flags.count, default=Month.hosts)
    parser.add_argument("--seed", type=flags.whole, default=Month.seed)
    parser.add_argument("--write", type=Path, help="only write the bill to this .csv or .parquet")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--divide", help=argparse.SUPPRESS)
    parser.add_argument("--lake", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    month = Month(rows=args.rows, hosts=args.hosts, seed=args.seed)
    if args.read:
        print(json.dumps(read_file(args.read, args.lake)))
    elif args.divide:
        print(json.dumps(divide(args.lake, args.divide)))
    elif args.write:
        table, truth = bill(month)
        write(table, args.write)
        print(json.dumps({k: str(v) for k, v in asdict(truth).items()}))
    else:
        with tempfile.TemporaryDirectory(prefix="steptax-focus-") as folder:
            print(json.dumps(measure(month, Path(folder)), indent=1))


if __name__ == "__main__":
    main()
