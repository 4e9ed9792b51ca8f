"""Which jobs of a fleet are looked at: by team, project, cluster, state, size and day of start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from steptax.app.compute.bill.apportion import to_us
from steptax.app.compute.bill.waterfall_groups import unstated
from steptax.app.compute.fleet.states import JobFact, size_order
from steptax.app.errors import NotFoundError, UserError
from steptax.app.views.fleet.facts import Facts
from steptax.app.views.fleet.stated_months import began_us

#: Labels that a filter names, in the order in which they are offered.
LABELS = ("team", "project", "cluster")
FIELDS = (*LABELS, "state", "size")


@dataclass(frozen=True)
class FleetFilter:
    """Jobs that fit every field; an empty one takes all. Several values of one field: any of them.

    What no source states has a name of its own (``no team stated``, ``unknown``, ``not stated``).
    """

    team: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    size: tuple[str, ...] = ()
    """Classes of ``size_class``."""
    first: date | None = None
    """First day of start, UTC (``began_us``); jobs of which it is unknown are left out."""
    last: date | None = None
    """Last day of start, included."""

    def __post_init__(self) -> None:
        """UserError for days in the wrong order."""
        if self.first is not None and self.last is not None and self.last < self.first:
            raise UserError(
                f"{self.last} is before {self.first}", where="--to", hint="both days are included"
            )

    @property
    def is_empty(self) -> bool:
        """Whether it takes every job."""
        return self == FleetFilter()

    @property
    def text(self) -> str:
        """The choice in words; empty for all jobs."""
        said = [
            f"{name} {' or '.join(values)}" for name in FIELDS if (values := getattr(self, name))
        ]
        if self.first is not None or self.last is not None:
            since = "" if self.first is None else f" from {self.first}"
            until = "" if self.last is None else f" to {self.last}"
            said.append(f"started{since}{until}, UTC")
        return ", ".join(said)

    def chosen(self, facts: Facts) -> Facts:
        """Those of ``facts`` that fit."""
        if self.is_empty:
            return facts
        asked = [
            (read, frozenset(wanted))
            for name, read in _READ.items()
            if (wanted := getattr(self, name))
        ]
        first_us = None if self.first is None else _midnight_us(self.first)
        end_us = None if self.last is None else _midnight_us(self.last + timedelta(days=1))

        def fits(fact: JobFact, row: Mapping[str, Any]) -> bool:
            if any(read(fact, row) not in wanted for read, wanted in asked):
                return False
            if first_us is None and end_us is None:
                return True
            start = began_us(row)
            return (
                start is not None
                and (first_us is None or start >= first_us)
                and (end_us is None or start < end_us)
            )

        return facts.only(fits)


@dataclass(frozen=True)
class FleetChoices:
    """What there is to choose from, most jobs first; sizes in their order."""

    team: tuple[str, ...]
    project: tuple[str, ...]
    cluster: tuple[str, ...]
    state: tuple[str, ...]
    size: tuple[str, ...]
    first: date | None
    """Day of the earliest known start, UTC."""
    last: date | None

    def of(self, name: str) -> tuple[str, ...]:
        """The values of one field."""
        found: tuple[str, ...] = getattr(self, name)
        return found


def fleet_choices(facts: Facts) -> FleetChoices:
    """The values that the jobs of a lake have."""
    pairs = list(zip(facts.jobs, facts.rows, strict=True))
    values = {name: _by_count([read(*pair) for pair in pairs]) for name, read in _READ.items()}
    starts = [us for row in facts.rows if (us := began_us(row)) is not None]
    return FleetChoices(
        values["team"],
        values["project"],
        values["cluster"],
        values["state"],
        tuple(sorted(values["size"], key=size_order)),
        _day(min(starts)) if starts else None,
        _day(max(starts)) if starts else None,
    )


def check_filter(facts: Facts, wanted: FleetFilter) -> None:
    """NotFoundError that names what there is where a value of ``wanted`` is of no job."""
    pairs = list(zip(facts.jobs, facts.rows, strict=True))
    for name, read in _READ.items():
        asked = getattr(wanted, name)
        unknown = set(asked) - {read(*pair) for pair in pairs} if asked else ()
        for value in unknown:
            listed = ", ".join(fleet_choices(facts).of(name)[:12]) or "none: there are no jobs"
            raise NotFoundError(
                f"no job has the {name} {value!r}",
                where=f"--{name}",
                hint=f"there are {listed}",
            )


def _by_count(values: Sequence[str]) -> tuple[str, ...]:
    counts = Counter(values)
    return tuple(sorted(counts, key=lambda value: (-counts[value], value)))


def _label(name: str) -> Callable[[JobFact, Mapping[str, Any]], str]:
    none = unstated(name)
    return lambda _, row: row.get(name) or none


#: How the value of each field is read from what is known of a job, and from its row.
_READ: dict[str, Callable[[JobFact, Mapping[str, Any]], str]] = {
    **{name: _label(name) for name in LABELS},
    "state": lambda fact, _: fact.state,
    "size": lambda fact, _: fact.size,
}


def _midnight_us(day: date) -> int:
    return to_us(datetime(day.year, day.month, day.day, tzinfo=UTC))


def _day(us: int) -> date:
    return datetime.fromtimestamp(us / 1e6, UTC).date()
