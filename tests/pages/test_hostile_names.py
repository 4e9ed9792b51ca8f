"""Jobs, teams, nodes and devices with hostile names, through every page and every file."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.connectors.base import Options
from tests.hostile import LURE, NAMES
from tests.pages.sent import PAGES, files, sent  # noqa: F401
from tests.team_lake import store_team

Show = Callable[..., AppTest]
#: What a spreadsheet takes for the begin of a formula (OWASP, CSV Injection).
_FORMULA = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
OFFER = ("provider", "gpu", "form_factor", "term", "segment")
_NUMBER = re.compile(r"[+-]?(\d[\d,.]*)?(e[+-]?\d+)?%?", re.IGNORECASE)


@pytest.fixture
def hostile(lake: Lake, fill: Callable[..., None]) -> Lake:
    """A job for each of the names, one a day, and what a provider of that name asks for."""

    def make(made: Lake) -> None:
        for day, word in enumerate(NAMES.values()):
            store_team(made, word, begin_us=1_772_323_200_000_000 + day * 86_400_000_000)
        offers = made.root.parent / "offers.csv"
        with offers.open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow([*OFFER, "date", "usd_per_gpu_hour"])
            for word in NAMES.values():
                for gpu, usd in (("H100", 2), ("B200", 3)):
                    lines.writerow([word, gpu, "SXM", "on-demand", "neocloud", "2026-02-01", usd])
        ingest_file(made, "prices", offers, Options())

    fill(lake, "hostile", make)
    return lake


class Tags(HTMLParser):
    """Tags that could run or lead somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        leads = ("href", "src", "action", "data", "style")
        risky = [
            f"{k}={v}" for k, v in attrs if k.startswith("on") or (k in leads and LURE in str(v))
        ]
        if tag in ("script", "img", "iframe", "object") or risky:
            self.found.append(f"{tag} {risky}")


def check_file(name: str, raw: bytes) -> None:
    if name.endswith(".csv"):
        for line in csv.reader(io.StringIO(raw.decode())):
            for cell in line:
                # Where the comma is a decimal point, this separates cells.
                for part in cell.split(";"):
                    is_text = not _NUMBER.fullmatch(part)
                    assert not (is_text and _FORMULA.match(part)), f"{name}: {cell!r}"
    elif name.endswith(".xlsx"):
        book = openpyxl.load_workbook(io.BytesIO(raw))
        cells = [cell for sheet in book for line in sheet.iter_rows() for cell in line]
        assert not [c.value for c in cells if c.data_type == "f" or c.hyperlink], name
    elif name.endswith(".html"):
        tags = Tags()
        tags.feed(raw.decode())
        assert not tags.found, name
        assert not _CONTROL.search(raw.decode()), name
    elif name.endswith(".pdf"):
        assert LURE.encode() not in re.sub(rb"\([^)]*\)", b"", raw)
        assert b"/JavaScript" not in raw
        assert b"/Launch" not in raw
    elif name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            for inner in archive.namelist():
                assert ".." not in Path(inner).parts
                assert not inner.startswith(("/", "\\"))
                check_file(inner, archive.read(inner))
    else:
        assert name.endswith(".json"), f"say here what may not be in {name}"


@pytest.mark.parametrize("page", PAGES)
def test_no_page_fails_and_no_file_attacks(
    hostile: Lake,
    show: Show,
    files: dict[str, Callable[[], Any]],  # noqa: F811
    page: str,
) -> None:
    jobs = [f"{word}-run" for word in NAMES.values()]
    many = {"job": len(jobs), "whatif": 2, "procurement": 2}.get(page, 1)
    for job in jobs[:many]:
        address = None if page == "executive" else f"../pages/{page}.py"
        at = show(address, job=job, price="2", rank="1", step="3")
        assert not at.exception, (job, at.exception[0].value)
        assert not [e.value for e in at.error], job
        for kind, proto in sent(at).items():
            if kind.startswith("html"):  # all else is text, and is drawn as text
                tags = Tags()
                tags.feed(proto.decode("utf-8", "replace"))
                assert not tags.found, (job, kind)
        for name, make in files.items():
            assert re.fullmatch(r"[A-Za-z0-9_.-]+", name), name
            found = make()
            check_file(name, found if isinstance(found, bytes) else str(found).encode())
    assert files or page == "reference"
    assert hostile.read("jobs").num_rows == len(NAMES)
    assert not Path("/tmp/pwned").exists()
