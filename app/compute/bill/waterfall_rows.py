"""A bill as a waterfall: buckets that add up to it exactly, in time and to the cent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.buckets import BUCKETS, OF_STATE, OPEN, Group
from steptax.app.compute.bill.cost import split_finely, split_to_cents
from steptax.app.compute.bill.goodput import Denominator, Goodput
from steptax.app.compute.bill.job_events import Finding
from steptax.app.compute.bill.ledger import OVERLAP, share_of
from steptax.app.compute.bill.timeline import Timeline
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.exact import exact_sum
from steptax.app.errors import IntegrityError

_ZERO = Fraction(0)


@dataclass(frozen=True)
class WaterfallRow:
    """One bucket."""

    bucket: str
    number: str
    """0 to 13 with 9a and 9b; of a coarser bucket the range that it holds, ``rest`` of the rest."""
    title: str
    gpu_us: Fraction | None
    """GPU-microseconds, exact; None when it is not known."""
    share_ratio: float | None
    """Of the denominator."""
    usd: Decimal | None
    """To the cent; None without a price."""
    note: str = ""
    usd_exact: Fraction | None = None

    @property
    def gpu_seconds(self) -> float | None:
        """GPU-seconds, for showing; ``gpu_us`` is exact."""
        return None if self.gpu_us is None else float(self.gpu_us / 1_000_000)

    @property
    def is_loss(self) -> bool:
        """Whether all of it is lost."""
        return BUCKETS[self.bucket].is_loss

    def costing(self, usd: Decimal | None, usd_exact: Fraction | None) -> WaterfallRow:
        """The same time at another cost; of tens of thousands, faster than ``replace``."""
        if usd is self.usd and usd_exact is self.usd_exact:
            return self
        return WaterfallRow(
            self.bucket,
            self.number,
            self.title,
            self.gpu_us,
            self.share_ratio,
            usd,
            self.note,
            usd_exact,
        )


@dataclass(frozen=True)
class Labels:
    """Whose bill it is, and of when; None where that is not known or it is of several."""

    job_id: str | None = None
    team: str | None = None
    project: str | None = None
    cluster: str | None = None
    owner: str | None = None
    period: str | None = None


@dataclass(frozen=True, eq=False)
class Source:
    """What a job's waterfall was made from, so that it can be cut by time."""

    timeline: Timeline
    """Of the whole job."""
    inner: Mapping[State, Mapping[str, Fraction]]
    """Buckets of the time in steps, by the state whose time they divide; GPU-microseconds."""
    known: frozenset[str]
    """Buckets that are zero where there is nothing in them."""
    missing: Mapping[str, str]
    """Reason per bucket that is not known."""
    notes: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Waterfall:
    """The bill of a job, a group or a period; the known rows add up to ``total_gpu_us``."""

    labels: Labels
    denominator: Denominator
    rows: tuple[WaterfallRow, ...]
    total_gpu_us: Fraction
    """The denominator A, GPU-microseconds, exact."""
    total_usd: Decimal | None
    level: Level
    has_steps: bool
    no_useful: str = ""
    """Why the useful part is not known; empty if it is."""
    at_risk: Measure | None = None
    """GPU-hours in steps since the last save: what a failure at the end would lose."""
    findings: tuple[Finding, ...] = ()
    """Overlaps, clocks, duplicates and rejected records, and how each was dealt with."""
    resources: frozenset[str] = frozenset()
    """Resources of the bill that it ran on."""
    warnings: tuple[str, ...] = ()
    """What holds for its factors, e.g. that they are lower bounds."""
    source: Source | None = None
    """None for a sum."""
    timeline: Timeline | None = None
    """The part of ``source.timeline`` that it covers; None for a sum."""
    steps_on_record: int = 0
    """Of one job: steps by number, however often each was executed."""
    undone_steps: int = 0
    """Of them, the newest ones that were rolled back and not executed again."""
    of_jobs: tuple[str, ...] = ()
    """Jobs that it stands for with one row each where it is of many that are alike (``alike``)."""

    @property
    def bills(self) -> int:
        """How many bills it counts as."""
        return len(self.of_jobs) or 1

    @property
    def jobs(self) -> tuple[str | None, ...]:
        """The jobs whose bill it is."""
        return self.of_jobs or (self.labels.job_id,)

    def __post_init__(self) -> None:
        """Refuse a waterfall that does not close."""
        total = exact_sum(r.gpu_us for r in self.rows if r.gpu_us is not None)
        if total != self.total_gpu_us:
            raise IntegrityError(
                f"buckets hold {total} of {self.total_gpu_us} GPU-us", where=self.labels.job_id
            )
        if self.total_usd is not None:
            money = sum((r.usd for r in self.rows if r.usd is not None), Decimal(0))
            if money != self.total_usd:
                raise IntegrityError(
                    f"buckets cost {money} of {self.total_usd} USD", where=self.labels.job_id
                )

    def row(self, bucket: str) -> WaterfallRow:
        """The row called ``bucket``; KeyError if there is no such bucket here."""
        for row in self.rows:
            if row.bucket == bucket:
                return row
        raise KeyError(bucket)

    def gpu_us(self, bucket: str) -> Fraction:
        """What a bucket holds, 0 where it is not known: for sums, not for showing."""
        return next((r.gpu_us for r in self.rows if r.bucket == bucket and r.gpu_us), _ZERO)

    @cached_property
    def goodput(self) -> Goodput:
        """Its factors; for a group these are ratios of sums."""
        groups = dict.fromkeys(Group, _ZERO)
        for row in self.rows:
            groups[BUCKETS[row.bucket].group] += row.gpu_us or _ZERO
        useful = next((r.gpu_us for r in self.rows if r.bucket == "useful"), None)
        in_steps = groups[Group.PROGRAM] + groups[Group.USEFUL]
        return Goodput(
            self.denominator,
            self.total_gpu_us,
            self.total_gpu_us - groups[Group.SCHEDULING],
            in_steps if self.has_steps else None,
            useful if self.has_steps else None,
            self.level,
            "" if self.has_steps else "no step that counts was recorded",
            self.no_useful,
            self.warnings,
            self.gpu_us("unexplained"),
        )

    @property
    def unexplained(self) -> Measure:
        """Share of the denominator of which it is not known what happened in it."""
        if not self.total_gpu_us:
            return Measure.missing("ratio", "there is no time to share", level=self.level)
        share = share_of(sum((self.gpu_us(b) for b in OPEN), _ZERO), self.total_gpu_us)
        if share is None:
            return Measure.missing("ratio", OVERLAP, level=self.level)
        return Measure(share, "ratio", level=self.level)

    def measures(self) -> dict[str, Measure]:
        """By metric id: the factors, ``gpu_hours``, ``unexplained_ratio``, ``spend_usd``."""
        found = self.goodput.measures() | {"unexplained_ratio": self.unexplained}
        if self.total_usd is None:
            found["spend_usd"] = Measure.missing("USD", "no price is known", level=Level.LOG)
        else:
            found["spend_usd"] = Measure(float(self.total_usd), "USD", level=Level.LOG)
        if self.at_risk is not None:
            found["at_risk_gpu_hours"] = self.at_risk
        return found

    @property
    def usd_exact(self) -> Fraction | None:
        """The bill before it is rounded to the cent."""
        if self.total_usd is None:
            return None
        return exact_sum(r.usd_exact for r in self.rows if r.usd_exact is not None)

    def priced(self, usd: Fraction | None, *, finely: bool = False) -> Waterfall:
        """The same time for ``usd`` in all: each bucket costs usd * share; None takes prices off.

        ``finely`` cuts these to whole billionths of a dollar, so that many can be added up.

        Raises IntegrityError for money without any time to spend it on.
        """
        if usd is not None and not self.total_gpu_us:
            if usd:
                raise IntegrityError("there is no time to divide the cost by")
            usd = None
        exact = {
            row.bucket: usd * row.gpu_us / self.total_gpu_us
            for row in self.rows
            if usd is not None and row.gpu_us is not None
        }
        if finely:
            exact = dict(zip(exact, split_finely(list(exact.values())), strict=True))
        cents = dict(zip(exact, split_to_cents(list(exact.values())), strict=True))
        rows = tuple(row.costing(cents.get(row.bucket), exact.get(row.bucket)) for row in self.rows)
        total_usd = sum(cents.values(), Decimal(0)) if cents else None
        return replace(self, rows=rows, total_usd=total_usd)


def close_cents(bills: Sequence[Waterfall]) -> list[Waterfall]:
    """Bills that are shown together, rounded so that all their rows add up to the rounded sum.

    Largest remainder over all rows at once; the total of each bill is the sum of its rows.
    """
    cells = [
        (k, row.bucket, row.usd_exact)
        for k, bill in enumerate(bills)
        for row in bill.rows
        if row.usd_exact is not None
    ]
    if not cells and all(bill.total_usd is None for bill in bills):
        return list(bills)
    cents = split_to_cents([exact for *_, exact in cells])
    money = {(k, bucket): usd for (k, bucket, _), usd in zip(cells, cents, strict=True)}
    out = []
    for k, bill in enumerate(bills):
        rows = tuple(row.costing(money.get((k, row.bucket)), row.usd_exact) for row in bill.rows)
        known = [row.usd for row in rows if row.usd is not None]
        out.append(replace(bill, rows=rows, total_usd=sum(known, Decimal(0)) if known else None))
    return out


def amounts(source: Source, part: Timeline) -> dict[str, Fraction]:
    """GPU-microseconds per bucket in ``part`` of the timeline of ``source``.

    The buckets inside of steps are divided in proportion to the time in steps, so that the parts
    of a cut add up to the whole exactly.
    """
    held = {
        bucket: Fraction(part.gpu_us(state))
        for state, bucket in OF_STATE.items()
        if bucket in source.known or source.timeline.gpu_us(state)
    }
    for state, inner in source.inner.items():
        whole = source.timeline.gpu_us(state)
        share = Fraction(part.gpu_us(state), whole) if whole else _ZERO
        for bucket, us in inner.items():
            held[bucket] = held.get(bucket, _ZERO) + us * share
    return held


def make_rows(
    held: Mapping[str, Fraction],
    missing: Mapping[str, str],
    notes: Mapping[str, str],
    total_gpu_us: Fraction,
) -> tuple[WaterfallRow, ...]:
    """Rows in their order: what is known, and what is not known with its reason."""
    rows = []
    for bucket in BUCKETS.values():
        us = held.get(bucket.name)
        if us is None and bucket.name not in missing:
            continue
        note = notes.get(bucket.name, "") if us is not None else missing[bucket.name]
        if us is not None and us < 0:
            note = OVERLAP
        share = share_of(us, total_gpu_us)
        rows.append(WaterfallRow(bucket.name, bucket.number, bucket.title, us, share, None, note))
    return tuple(rows)
