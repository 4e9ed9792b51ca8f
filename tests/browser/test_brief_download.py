"""The brief as a reader takes it from the page, in a real browser."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.app.fleet_lake import HOUR, job, lake_of, us

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_page_hands_out_the_numbers_of_the_command(
    page: Page, serve: Callable[..., str], tmp_path: Path
) -> None:
    begin = us(2026, 11, 1)
    jobs = [job(f"j{n}", begin, begin + (7 + n) * HOUR, cluster=f"c{n % 2}") for n in range(5)]
    lake_of(tmp_path / "lake", jobs=jobs)
    address = serve(tmp_path / "lake")
    page.goto(f"{address}/?price=2.13&by=cluster")
    buttons = page.locator(".st-key-brief")
    expect(buttons.get_by_role("button")).to_have_count(4)
    command = [sys.executable, "-m", "steptax.app.cli", "report", "executive", "--json"]
    command += ["--price", "2.13", "--by", "cluster", "--base-url", f"{address}/"]
    out = ["--lake", str(tmp_path / "lake"), "-o", str(tmp_path / "b.csv")]
    told = json.loads(subprocess.run([*command, *out], capture_output=True, check=True).stdout)
    got = {}
    for form in ("CSV", "PDF"):
        with page.expect_download() as download:
            buttons.get_by_role("button", name=form).click()
        assert download.value.suggested_filename == f"steptax-executive.{form.lower()}"
        got[form] = Path(download.value.path()).read_bytes()
    assert got["PDF"].startswith(b"%PDF-")
    here = list(csv.reader(io.StringIO(got["CSV"].decode())))
    there = list(csv.reader(io.StringIO((tmp_path / "b.csv").read_text())))
    assert len(here) == len(there)
    # All cells but the moment at which they were made.
    assert len([row for row in here if row not in there]) <= 1
    assert told["data"]["page"] in [row[3] for row in here]
    assert "j4" in [row[3] for row in here]
