"""The first rows of the first job arrive while somebody looks: what is there stays at its place."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from steptax.app.lake import Lake
from tests.app.device_lake import RANKS, store_ranks, store_steps
from tests.browser.looking import NARROW, WIDE

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: Every height that the choices on top have had.
_WATCH = """() => { window.heights = []; new ResizeObserver(seen => window.heights.push(
    seen[0].contentRect.height)).observe(document.querySelector('.st-key-strip')); }"""


@pytest.mark.parametrize("size", [NARROW, WIDE])
def test_the_choices_on_top_take_no_more_room_once_there_is_a_job(
    serve: Callable[..., str], page: Page, tmp_path: Path, size: tuple[int, int]
) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    url = serve(lake.root)
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto(f"{url}/job?job=first")
    expect(page.get_by_text("looks again by itself")).to_be_visible()
    page.wait_for_timeout(1_000)
    page.evaluate(_WATCH)
    store_ranks(lake, "first")
    store_steps(lake, "first")
    expect(page.locator(".st-key-card")).to_be_visible()
    page.wait_for_timeout(1_000)
    heights = page.evaluate("() => window.heights")
    assert max(heights) - min(heights) < 2, heights
    assert page.locator(".st-key-job input").input_value() == "first"
    expect(page.locator(".st-key-no_job")).not_to_be_visible()


def test_a_page_that_stood_open_before_the_job_began_follows_it(
    serve: Callable[..., str], page: Page, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    page.goto(f"{serve(lake.root)}/job?job=first")
    expect(page.get_by_text("looks again by itself")).to_be_visible()
    # As a collector stores it: a recorder's rows may be there before its first sign of life.
    store_ranks(lake, "first")
    store_steps(lake, "first")
    expect(page.locator(".st-key-card")).to_be_visible()
    expect(page.locator(".st-key-newest_step")).not_to_be_visible()
    folder = lake.root / "live" / "job=first"
    folder.mkdir(parents=True)
    beats = [
        {"rank": rank, "ts_us": time.time_ns() // 1_000, "state": "running"}
        for rank in range(RANKS)
    ]
    (folder / "beats-collector.json").write_text(json.dumps(beats))
    expect(page.locator(".st-key-newest_step")).to_be_visible()
