"""The demo as a person meets it: a real job, live, its slow worker named, priced and looked at."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Page, expect

from steptax.app.demo.config import DemoConfig
from steptax.app.lake import Lake
from steptax.app.serve import wait_until_healthy
from steptax.app.views.job.view import job_view
from steptax.app.views.workspace import open_workspace
from tests.patience import until

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def the_job(demo: Any) -> str:
    """Id of the demo's job, once it has recorded steps."""

    def look() -> str | None:
        if not (demo.lake / "LAKE.json").exists():
            return None
        jobs = Lake(demo.lake).job_ids("steps")
        return jobs[0] if jobs else None

    found: str = until(look, "the first recorded step")
    return found


def test_the_card_names_the_slow_worker_and_a_cell_opens_its_timeline(
    demo: Callable[..., Any],
    page: Page,
    screenshot: Callable[..., None],
) -> None:
    running = demo("--price", "2")
    job = the_job(running)
    culprit = DemoConfig(lake=running.lake, job_id=job).straggler_rank

    def named() -> bool:
        view = job_view(open_workspace(running.lake), job, price=None)
        return view.coverage.steps_used >= 30 and view.card.culprit_rank == culprit

    until(named, "the card to name the slow worker")
    wait_until_healthy(running.url)
    page.goto(f"{running.url}/job?job={job}")
    card = page.locator(".st-key-card")
    expect(card).to_contain_text(f"rank {culprit}", ignore_case=True)
    expect(card).to_contain_text("compute")
    expect(card).to_contain_text(re.compile(r"sequence", re.IGNORECASE))
    expect(card).to_contain_text(re.compile(r"\$\d"))
    expect(page.locator(".st-key-coverage")).to_contain_text("8 of 8 ranks reporting")

    # Live: the newest step moves on by itself, and nothing jumps (Web Vitals: good below 0.1), also
    # not where the first steps have been read: what says so takes the place of what said it.
    page.evaluate(
        """() => { window.shifted = 0; new PerformanceObserver(list => list.getEntries().forEach(
            e => { if (!e.hadRecentInput) window.shifted += e.value; }
        )).observe({type: 'layout-shift'}); }"""
    )
    read = page.locator(".st-key-first_steps")
    if read.count():  # else the page was opened too late for it
        expect(read).to_contain_text("steps are read")
    page.wait_for_timeout(3_000)
    assert page.evaluate("() => window.shifted") < 0.05
    before = page.locator(".st-key-coverage").inner_text()
    until(lambda: page.locator(".st-key-coverage").inner_text() != before, "the page to move on")
    page.wait_for_timeout(5_000)  # two more refreshes
    assert page.evaluate("() => window.shifted") < 0.1

    def click_a_cell() -> dict[str, list[str]]:
        """The live figure is drawn anew every two seconds, so it is found anew at each try."""
        box = page.evaluate(
            """() => {
                const plot = document.querySelector('.st-key-heat .nsewdrag');
                if (!plot) return null;
                plot.scrollIntoView({block: 'center'});
                const b = plot.getBoundingClientRect();
                return {x: b.x + b.width * 0.4, y: b.y + b.height * 0.5};
            }"""
        )
        if box is None:
            return {}
        page.mouse.move(box["x"] - 5, box["y"])
        page.mouse.move(box["x"], box["y"])
        page.mouse.click(box["x"], box["y"])
        page.wait_for_timeout(1500)
        query = parse_qs(urlparse(page.url).query)
        return query if {"rank", "step"} <= query.keys() else {}

    query = until(click_a_cell, "rank and step in the address")
    # While one figure replaces the other there are two.
    shown = re.compile(rf"(last|chosen|median) · {query['rank'][0]}")
    expect(page.locator(".st-key-timeline").first).to_contain_text(shown)
    screenshot(page, "demo-job-light")

    # The address alone brings the same view back.
    other = page.context.new_page()
    address = page.url
    query = parse_qs(urlparse(address).query)
    other.goto(address)
    expect(other.get_by_label("Step", exact=True)).to_have_value(query["step"][0])
    expect(other.get_by_label("Rank", exact=True)).to_have_value(query["rank"][0])
    expect(other.locator(".st-key-timeline").first).to_be_visible()

    children = running.children()
    assert len(children) >= 9
    printed = running.interrupt()
    assert running.process.returncode == 0, printed
    assert f"rank {culprit}" in printed
    until(lambda: all(is_gone(pid) for pid in children), "every process to be gone")


def test_a_killed_worker_is_named_and_the_rest_stays_right(
    demo: Callable[..., Any],
    page: Page,
    screenshot: Callable[..., None],
) -> None:
    running = demo("--price", "2", "--straggler", "none")
    job = the_job(running)
    until(
        lambda: job_view(open_workspace(running.lake), job, price=None).coverage.steps_used >= 20,
        "twenty steps",
    )
    wait_until_healthy(running.url)
    beats = {beat["rank"]: beat["pid"] for beat in Lake(running.lake).heartbeats(job)}
    os.kill(beats[3], signal.SIGKILL)
    page.goto(f"{running.url}/job?job={job}")
    stopped = page.locator(".st-key-stopped")
    expect(stopped).to_contain_text("rank 3 stopped reporting")
    expect(stopped).to_contain_text("ago")
    expect(page.locator(".st-key-coverage")).to_contain_text("7 of 8 ranks reporting")
    screenshot(page, "demo-worker-killed")
    view = job_view(open_workspace(running.lake), job, price=None)
    assert [rank.rank for rank in view.coverage.stopped] == [3]
    assert view.metrics["straggler_tax_ratio"].value is not None
    running.interrupt()


@pytest.mark.parametrize("straggler", ["input", "compute", "gc"])
def test_the_command_alone_names_what_slows_the_worker(
    steptax: Callable[..., Any], straggler: str, tmp_path: Path
) -> None:
    data = steptax(
        "demo",
        *("--no-browser", "--no-dashboard", "--steps", 80),
        *("--straggler", straggler, "--price", "2", "--lake", tmp_path / "lake"),
    )
    card = data["card"]
    assert card["verdict"] == "worker", card["sentence"]
    assert card["phase"] == straggler
    assert card["cost_per_hour_usd"]["value"] > 0
