"""``steptax demo --company``: six weeks of a made-up company in a lake, to look at every page.

Everything in it is synthetic and says so in its source. What is wrong with its jobs is planted, and
`Planted` says what each fault cost, so that a test can hold the pages against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from steptax.app.demo.company_facts import (
    charges_table,
    device_table,
    jobs_table,
    nodes_table,
    offers_table,
    ranks_table,
)
from steptax.app.demo.company_plan import DAYS, Job, plan
from steptax.app.demo.company_steps import Made, make_job
from steptax.app.errors import IntegrityError, UserError
from steptax.app.lake import Lake
from steptax.app.lake.ingest import ingest
from steptax.app.schema import Batch, table
from steptax.app.views.review.budget import set_budget
from steptax.app.views.workspace import open_workspace

SOURCE = "synthetic: steptax demo --company"
#: What the company pays where no other price is given, USD per GPU-hour.
PRICE = Decimal("2.50")
#: What is promised for each month: money, in USD at `PRICE`, and the useful share of the time.
BUDGET_USD = Decimal(45_000)
GOODPUT_SLO = 0.8
_US_PER_HOUR = 3.6e9


@dataclass(frozen=True)
class Planted:
    """A fault that was planted, and what its slow rank cost: by the same draws without it.

    ``lost_gpu_hours`` is 0 where no rank is slow: failures and a slow loader are in the ledger.
    """

    job_id: str
    story: str
    rank: int | None
    host: str | None
    lost_gpu_hours: float


@dataclass(frozen=True)
class Company:
    """What the lake holds: the six weeks before ``until_us`` (microseconds since 1970, UTC)."""

    until_us: int
    jobs: int
    step_rows: int
    usd_per_gpu_hour: Decimal
    planted: tuple[Planted, ...]
    was_there: bool

    @property
    def worst(self) -> Planted:
        """The fault that cost most."""
        return max(self.planted, key=lambda one: one.lost_gpu_hours)


def make_company(
    root: Path, *, until_us: int, seed: int = 0, usd_per_gpu_hour: Decimal = PRICE
) -> Company:
    """A lake in ``root`` with the six weeks before ``until_us`` (microseconds since 1970, UTC).

    All rows become visible together; the same arguments give the same rows. A company that is
    there is left as it is. Raises UserError where ``root`` holds anything else.
    """
    lake = Lake(root, create=True)
    found = company_in(lake)
    if found is not None:
        return found
    jobs = plan(until_us, seed)
    made = {job.job_id: make_job(job, seed) for job in jobs if job.has_steps}
    planted = [_planted(job, made[job.job_id]) for job in jobs if job.story]
    facts = {
        "connector": "synthetic",
        "until_us": until_us,
        "jobs": len(jobs),
        "usd_per_gpu_hour": str(usd_per_gpu_hour),
        "planted": [asdict(one) for one in planted],
    }
    ingest(
        lake,
        _batches(jobs, made, until_us, seed, usd_per_gpu_hour),
        ingest_id=sha256(f"{SOURCE} {until_us} {seed}".encode()).hexdigest()[:24],
        source=SOURCE,
        detail=facts,
    )
    _promise(root, until_us, usd_per_gpu_hour)
    stored = company_in(lake)
    if stored is None:
        raise IntegrityError("the company that was just stored is not there", where=str(root))
    return replace(stored, was_there=False)


def company_in(lake: Lake) -> Company | None:
    """The company that ``lake`` holds; None for an empty lake.

    Raises UserError where there is anything else.
    """
    for commit in lake.ingests():
        facts = commit.detail
        if facts.get("source") == SOURCE:
            return Company(
                int(facts["until_us"]),
                int(facts["jobs"]),
                int(facts["accepted"]["steps"]),
                Decimal(facts["usd_per_gpu_hour"]),
                tuple(Planted(**one) for one in facts["planted"]),
                was_there=True,
            )
    if any(lake.row_counts().values()):
        raise UserError(
            "there is a lake with other data here, and synthetic jobs would stand among them",
            where=str(lake.root),
            hint="name an empty folder with --lake, or leave --lake out",
        )
    return None


def _batches(
    jobs: tuple[Job, ...],
    made: dict[str, Made],
    until_us: int,
    seed: int,
    usd_per_gpu_hour: Decimal,
) -> Iterator[Batch]:
    events = [event for one in made.values() for event in one.events]
    spec = table("events")
    columns = {
        name: pa.array([event[name] for event in events], spec.column(name).type)
        for name in events[0]
    }
    yield Batch("jobs", jobs_table(jobs, until_us))
    yield Batch("ranks", ranks_table(jobs))
    yield Batch("nodes", nodes_table(until_us))
    yield Batch("charges", charges_table(jobs, until_us, usd_per_gpu_hour))
    yield Batch("prices", offers_table(until_us, usd_per_gpu_hour))
    yield Batch("events", pa.table(columns))
    hot = {name: one.slow_from_us for name, one in made.items() if one.slow_from_us is not None}
    yield Batch("device_samples", device_table(jobs, hot, until_us, seed))
    for one in made.values():
        for part in one.steps:
            yield Batch("steps", part)


def _planted(job: Job, made: Made) -> Planted:
    host = None if job.slow_rank is None else job.device(job.slow_rank)[0]
    return Planted(job.job_id, job.story, job.slow_rank, host, made.lost_gpu_us / _US_PER_HOUR)


def _promise(root: Path, until_us: int, usd_per_gpu_hour: Decimal) -> None:
    """A budget and an objective for each month that the six weeks touch."""
    workspace = open_workspace(root)
    days = (datetime.fromtimestamp(until_us / 1e6, UTC) - timedelta(days=k) for k in range(DAYS))
    for period in sorted({f"{day:%Y-%m}" for day in days}):
        set_budget(
            workspace,
            scope="all",
            period=period,
            budget_usd=(BUDGET_USD * usd_per_gpu_hour / PRICE).quantize(Decimal(1)),
            goodput_slo_ratio=GOODPUT_SLO,
            set_by="synthetic",
            note=SOURCE,
        )
