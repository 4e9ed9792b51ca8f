"""What an installation says about its bills: whose the tags are, what hosts are called, rates."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError, UserError
from steptax.app.views.fleet.bill_models import USD

#: What tags may name, and the tags that are looked at where nobody says others.
TAGS: Mapping[str, tuple[str, ...]] = {
    "job": ("job_id", "job", "slurm_job_id", "steptax_job_id"),
    "team": ("team",),
    "project": ("project",),
    "owner": ("owner",),
    "cluster": ("cluster",),
}
LABELS = ("team", "project", "owner", "cluster")
_EXAMPLE = (
    '[tags]\njob = ["slurm_job_id"]\n[resources]\n"i-0abc" = "node-17"\n[rates]\nEUR = "1.08"'
)


@dataclass(frozen=True)
class BillRules:
    """How charges are joined to jobs; ``rates`` are USD for one unit of a currency."""

    tags: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: dict(TAGS))
    resources: Mapping[str, str] = field(default_factory=dict)
    """Host by the id of its resource, where the id does not end with the name of the host."""
    rates: Mapping[str, Fraction] = field(default_factory=dict)

    @property
    def currency(self) -> str:
        """What costs are converted into."""
        return USD

    def claim(self, tags: str) -> tuple[str | None, Mapping[str, str]]:
        """The job that ``tags`` (a JSON object) name, and the labels, by level."""
        found = _objects(tags)
        labels = {name: value for name in LABELS if (value := self._first(name, found))}
        return self._first("job", found), labels

    def _first(self, what: str, tags: Mapping[str, str]) -> str | None:
        return next(
            (tags[k] for name in self.tags.get(what, ()) if (k := plain(name)) in tags), None
        )


def plain(name: str) -> str:
    """``user:Cost-Center`` as ``cost_center``: how names of tags are compared."""
    clean = re.sub(r"[^0-9a-z]+", "_", name.strip().lower()).strip("_")
    return clean.removeprefix("user_") or clean


@lru_cache(maxsize=1 << 16)
def _objects(text: str) -> Mapping[str, str]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(found, Mapping):
        return {}
    return {plain(str(k)): str(v).strip() for k, v in found.items() if str(v).strip()}


def read_rules(path: Path | None) -> BillRules:
    """The rules of a TOML file with the tables tags, resources and rates; without one the usual.

    InputError names what in it cannot be.
    """
    if path is None:
        return BillRules()
    try:
        told = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is no TOML: {error}", where=str(path), hint=_EXAMPLE) from None
    unknown = sorted(told.keys() - {"tags", "resources", "rates"})
    if unknown:
        raise InputError(
            f"there is no table {unknown[0]!r}",
            where=str(path),
            hint=f"tags, resources and rates, for example\n{_EXAMPLE}",
        )
    where = str(path)
    tags = {name: _names(value, name, where) for name, value in _table(told, "tags", where).items()}
    rates = {
        name: _rate(str(value), f"{where}, rates.{name}")
        for name, value in _table(told, "rates", where).items()
    }
    resources = {k: str(v) for k, v in _table(told, "resources", where).items()}
    return BillRules({**TAGS, **_known(tags, where)}, resources, _upper(rates))


def with_options(
    rules: BillRules,
    *,
    tags: Sequence[str] = (),
    resources: Sequence[str] = (),
    rates: Sequence[str] = (),
) -> BillRules:
    """``rules`` with what ``--tag``, ``--resource`` and ``--rate`` say, each as OURS=THEIRS.

    UserError names what in them cannot be.
    """
    own: dict[str, list[str]] = {}
    for name, value in _pairs(tags, "--tag", "job=slurm_job_id"):
        own.setdefault(name, []).append(value)
    told = {name: tuple(values) for name, values in own.items()}
    found = {
        name: _rate(v, f"--rate {name}={v}") for name, v in _pairs(rates, "--rate", "EUR=1.08")
    }
    return BillRules(
        {**rules.tags, **_known(told, "--tag")},
        {**rules.resources, **dict(_pairs(resources, "--resource", "i-0abc=node-17"))},
        {**rules.rates, **_upper(found)},
    )


def amounts_of(pairs: Sequence[str], flag: str) -> dict[str, Decimal]:
    """``INVOICE=AMOUNT`` arguments; UserError for one that is none."""
    out = {}
    for name, value in _pairs(pairs, flag, "INV-1=1234.56"):
        try:
            out[name] = Decimal(value.replace(",", ""))
        except InvalidOperation:
            out[name] = Decimal("nan")
        if not out[name].is_finite():
            raise UserError(f"expected an amount, found {value!r}", where=f"{flag} {name}={value}")
    return out


def _pairs(pairs: Iterable[str], flag: str, example: str) -> list[tuple[str, str]]:
    found = []
    for pair in pairs:
        ours, _, theirs = pair.rpartition("=")
        if not ours.strip() or not theirs.strip():
            raise UserError(
                f"expected {flag} {example}, found {pair!r}", where=flag, hint="NAME=VALUE"
            )
        found.append((ours.strip(), theirs.strip()))
    return found


def _table(told: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    found = told.get(name, {})
    if not isinstance(found, Mapping):
        raise InputError(f"expected a table [{name}]", where=where, hint=_EXAMPLE)
    return found


def _names(value: Any, name: str, where: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise InputError("expected names of tags", where=f"{where}, tags.{name}", hint=_EXAMPLE)
    return tuple(names)


def _known(tags: Mapping[str, tuple[str, ...]], where: str) -> Mapping[str, tuple[str, ...]]:
    for name in tags:
        if name not in TAGS:
            raise InputError(
                f"tags cannot name a {name!r}", where=where, hint=f"they name {', '.join(TAGS)}"
            )
    return tags


def _rate(text: str, where: str) -> Fraction:
    try:
        rate = Decimal(text)
    except InvalidOperation:
        rate = Decimal(0)
    if not rate.is_finite() or rate <= 0:
        raise InputError(
            f"expected USD for one unit of the currency, above 0, found {text!r}", where=where
        )
    return Fraction(rate)


def _upper(rates: Mapping[str, Fraction]) -> Mapping[str, Fraction]:
    return {name.upper(): rate for name, rate in rates.items()}
