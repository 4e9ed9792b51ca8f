"""The totals of one fleet, wherever they are told: commands, files and pages."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from steptax.app.report.pdf import browser
from tests.page_run import open_page

Steptax = Callable[..., Any]
PRICE = ("--price", "2")
CENT = 0.01


@dataclass(frozen=True)
class Totals:
    """What was computed of a fleet independently, at $2.00 per GPU-hour."""

    gpu_hours: float
    usd: float
    level: str
    """Label of the groups."""
    groups: Mapping[str, float] = field(default_factory=dict)
    """GPU-hours by group."""
    states: Mapping[str, float] = field(default_factory=dict)
    """GPU-hours by state."""
    tolerance: float = CENT
    workbook: bool = True
    """Whether the cost review is written as a workbook: with a line per job that takes a while."""


def check_everywhere(steptax: Steptax, folder: Path, want: Totals) -> None:
    """Every output tells ``want``; those that add up cents tell the same cents."""
    ledger = steptax("ledger", "--by", want.level, *PRICE)
    total = ledger["total"]
    assert total["gpu_hours"] == pytest.approx(want.gpu_hours, abs=want.tolerance)
    assert total["usd"] == pytest.approx(want.usd, abs=2 * want.tolerance)
    groups = {group["name"]: group for group in ledger["groups"]}
    assert {n: g["gpu_hours"] for n, g in groups.items()} == pytest.approx(
        dict(want.groups), abs=CENT
    )
    hours, cents = total["gpu_hours"], f"${total['usd']:,.2f}"
    review = steptax("executive", *PRICE)
    metrics = review["metrics"]
    fleet = steptax("fleet", *PRICE)
    if want.level == "month":
        held = {name: group["gpu_hours"] for name, group in groups.items()}
        by_month = {row["name"]: row["gpu_hours"]["value"] for row in fleet["groups"]["month"]}
        assert by_month == pytest.approx(held, rel=1e-12)
        by_month = {row["period"]: row["gpu_hours"] for row in review["by_period"]}
        assert by_month == pytest.approx(held, rel=1e-12)
    assert metrics["gpu_hours"]["value"] == pytest.approx(hours, rel=1e-12)
    assert fleet["gpu_hours"]["value"] == pytest.approx(hours, rel=1e-12)
    assert f"${metrics['spend_usd']['value']:,.2f}" == cents
    assert f"${fleet['usd']['value']:,.2f}" == cents
    states = {row["state"]: row["gpu_hours"]["value"] for row in fleet["states"]}
    assert {s: states[s] for s in want.states} == pytest.approx(dict(want.states), abs=CENT)
    texts = [cents, f"{round(hours, 2):,.10g}"]
    _review(steptax, folder, want, groups, texts)
    _fleet_files(steptax, folder, states, texts)
    _fleet_page(states, texts)


def _review(
    steptax: Steptax, folder: Path, want: Totals, groups: Mapping[str, Any], texts: list[str]
) -> None:
    ask = ("report", "executive", "--by", want.level, *PRICE, "-o")
    forms = ["csv", "html", *(["xlsx"] if want.workbook else [])]
    for form in (*forms, *(["pdf"] if browser() is not None else [])):
        steptax(*ask, folder / f"review.{form}")
    cells = cells_of(folder / "review.csv")
    (total,) = cells["bill_total"]
    assert f"${float(total['cost']):,.2f}" == texts[0]
    assert {row["name"]: float(row["cost"]) for row in cells["bill"]} == {
        name: group["usd"] for name, group in groups.items()
    }
    if want.workbook:
        book = pytest.importorskip("openpyxl").load_workbook(folder / "review.xlsx", read_only=True)
        numbers = {row[0].value: row[2].value for row in book["Numbers"].iter_rows(min_row=2)}
        assert f"${numbers['spend_usd']:,.2f}" == texts[0]
    printed = [(folder / "review.html").read_text()]
    if browser() is not None:
        pages, text = pdf_text((folder / "review.pdf").read_bytes())
        assert pages == 1
        printed.append(text)
    largest = sorted(groups.values(), key=lambda group: -group["gpu_hours"])[:6]
    for text in (*texts, *(f"${group['usd']:,.2f}" for group in largest)):
        assert all(text in page for page in printed), text


def _fleet_files(
    steptax: Steptax, folder: Path, states: Mapping[str, float | None], texts: list[str]
) -> None:
    for form in ("csv", "xlsx", "html"):
        steptax("report", "fleet", *PRICE, "-o", folder / f"fleet.{form}")
    rows = cells_of(folder / "fleet.csv")["states"]
    told = {row["state"]: float(row["gpu_hours"]) if row["gpu_hours"] else None for row in rows}
    assert told == states
    book = pytest.importorskip("openpyxl").load_workbook(folder / "fleet.xlsx")
    sheet = list(book["Jobs by state"].iter_rows(min_row=2, values_only=True))
    assert {row[0]: row[3] for row in sheet} == pytest.approx(states)
    html = (folder / "fleet.html").read_text()
    for text in texts:
        assert text in html, text


def _fleet_page(states: Mapping[str, float | None], texts: list[str]) -> None:
    at = open_page("../pages/fleet.py", price="2")
    assert not at.exception
    frames = [frame.value for frame in at.dataframe]
    (own,) = [frame for frame in frames if {"state", "jobs_share"} <= {*frame.columns}]
    known = {state: hours for state, hours in states.items() if hours is not None}
    shown = dict(zip(own["state"], own["gpu_hours"], strict=True))
    assert {state: shown[state] for state in known} == pytest.approx(known)
    captions = " ".join(caption.value.replace("\\", "") for caption in at.caption)
    for text in texts:
        assert text in captions, text


def cells_of(path: Path) -> dict[str, list[dict[str, str]]]:
    """The tables of a CSV of a report, row by row."""
    found: dict[str, dict[int, dict[str, str]]] = {}
    with path.open(newline="") as lines:
        for cell in csv.DictReader(lines):
            rows = found.setdefault(cell["table"], {})
            rows.setdefault(int(cell["row"]), {})[cell["field"]] = cell["value"]
    return {name: list(rows.values()) for name, rows in found.items()}


def pdf_text(content: bytes) -> tuple[int, str]:
    """How many pages, and what can be read on them."""
    pypdf = pytest.importorskip("pypdf")
    pages = pypdf.PdfReader(io.BytesIO(content)).pages
    return len(pages), "\n".join(page.extract_text() for page in pages)
