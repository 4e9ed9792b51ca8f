"""Links to the page that shows what a report says, with the same choices."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from urllib.parse import quote, urlencode, urlsplit

from steptax.app.compute.spend.compared import NOTHING, PREVIOUS, YEAR
from steptax.app.errors import UserError
from steptax.app.report.models import Link
from steptax.app.views.fleet.filter import FIELDS, FleetFilter

#: Windows that the job page offers, in steps; ``all`` is one more.
PAGE_WINDOWS = (100, 500, 2000)
OWN_DAYS = "days of my own"
#: Choices of the cost review, as its page and a link have them, and as the review takes them.
COMPARISONS = {
    "days before": PREVIOUS,
    "year before": YEAR,
    OWN_DAYS: "",
    "nothing": NOTHING,
}


def executive_link(
    base_url: str | None,
    *,
    price: Decimal | None,
    compare_to: str = PREVIOUS,
    by: str = "team",
    denominator: str = "paid",
    tz: str = "UTC",
    first: date | None = None,
    last: date | None = None,
) -> Link:
    """The cost review of the same days; what equals the page's own choice is left out."""
    chosen = {"by": by, "denominator": denominator, "tz": tz}
    usual = {"by": "team", "denominator": "paid", "tz": "UTC"}
    query = _price(price) | {k: v for k, v in chosen.items() if v != usual[k]}
    return _link(base_url, "/", query | _days(first, last) | _compared(compare_to), "")


def fleet_link(base_url: str | None, *, price: Decimal | None, only: FleetFilter) -> Link:
    """The fleet page with the same jobs chosen."""
    query: dict[str, str | list[str]] = {**_price(price)}
    query |= {name: list(own) for name in FIELDS if (own := getattr(only, name))}
    return _link(base_url, "/fleet", query | _days(only.first, only.last), "")


def job_link(
    base_url: str | None, job_id: str, *, price: Decimal | None, last_steps: int | None
) -> Link:
    """The job's page; a window that the page does not offer is told in the note."""
    note = ""
    window = "all" if last_steps is None else str(last_steps)
    if last_steps is not None and last_steps not in PAGE_WINDOWS:
        window, note = "all", f"the page shows all steps; the report the last {last_steps:,}"
    return _link(base_url, "/job", {"job": job_id} | _price(price) | {"window": window}, note)


def _compared(how: str) -> dict[str, str]:
    """What the period is compared with, as the page has it in its address."""
    if how == PREVIOUS:
        return {}
    for label, own in COMPARISONS.items():
        if own == how:
            return {"compare_to": label}
    begin, _, end = how.partition("..")
    return {"compare_to": OWN_DAYS, "compare_from": begin, "compare_until": end}


def _days(first: date | None, last: date | None) -> dict[str, str]:
    days = {"from": first, "to": last}
    return {name: day.isoformat() for name, day in days.items() if day is not None}


def _price(price: Decimal | None) -> dict[str, str]:
    return {} if price is None else {"price": f"{price:f}"}


def _link(base_url: str | None, path: str, query: Mapping[str, str | list[str]], note: str) -> Link:
    asked = f"?{urlencode(query, doseq=True, quote_via=quote)}" if query else ""
    if base_url is None:
        return Link(f"{path}{asked}", False, note)
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise UserError(
            f"expected where the pages are served, found {base_url!r}",
            where="--base-url",
            hint="for example --base-url https://steptax.example.org",
        )
    return Link(f"{base_url.rstrip('/')}{path}{asked}", True, note)
