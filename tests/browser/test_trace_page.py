"""The what-if section as a person meets it: a real trace, its slow worker, repairs, links."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Browser, Page, expect

from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.connectors.base import Options
from tests.patience import until

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def address(
    shared: Callable[[str], Path], tmp_path: Path, serve: Callable[..., str]
) -> Callable[[str], str]:
    """Address of the job page of a real trace."""

    def open_page(name: str) -> str:
        lake = Lake(tmp_path / "lake", create=True)
        options = Options(job_id=name, meta=shared(f"ops/meta-{name}.yaml"))
        ingest_file(lake, "ops", shared(f"ops/trace-{name}.parquet"), options)
        return f"{serve(lake.root)}/job?job={name}&price=2.0"

    return open_page


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlparse(page.url).query)


def drag(page: Page, container: str, first: float, last: float) -> None:
    """Draw a box across a figure, from one share of its width to another, if it is there."""
    # Found anew at each try: a figure that is drawn again replaces the one before.
    box = page.evaluate(
        """(container) => {
            const area = document.querySelector(container + ' .nsewdrag');
            if (!area) return null;
            area.scrollIntoView({block: 'center'});
            const b = area.getBoundingClientRect();
            return {x: b.x, y: b.y + b.height / 2, width: b.width};
        }""",
        container,
    )
    if box is None:
        return
    page.mouse.move(box["x"] + first * box["width"], box["y"])
    page.mouse.down()
    page.mouse.move(box["x"] + (first + last) / 2 * box["width"], box["y"] + 5, steps=5)
    page.mouse.move(box["x"] + last * box["width"], box["y"] + 10, steps=5)
    page.mouse.up()


def test_a_repair_is_ticked_a_step_chosen_and_the_link_brings_it_back(
    address: Callable[[str], str],
    page: Page,
    screenshot: Callable[..., None],
) -> None:
    page.goto(address("AR"))
    expect(page.locator(".st-key-trace_sentence")).to_contain_text("One worker is slow: rank 0")
    slowdown = page.locator(".st-key-trace_answer_S")
    expect(slowdown).to_contain_text("1.97×")
    page.get_by_text("Fix rank 0", exact=False).first.click()
    expect(slowdown).to_contain_text("1.00×")
    expect(slowdown).to_contain_text("now 1.97×")
    expect(page.locator(".st-key-trace_answer_usd")).to_contain_text("$1,518/day")
    until(lambda: query(page).get("fix.ranks") == ["true"], "the fix in the address")

    page.get_by_role("combobox", name="Steps in the map").click()
    page.get_by_role("combobox", name="Steps in the map").fill("414")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Step 414, operation by operation")).to_be_visible()
    until(lambda: query(page).get("trace_step") == ["414"], "the step in the address")

    # A box across the timeline shows that part in detail.

    def part_is_chosen() -> bool:
        drag(page, ".st-key-trace_gantt", 0.25, 0.5)
        page.wait_for_timeout(2_000)
        return "trace_window" in query(page)

    until(part_is_chosen, "the part of the step in the address")
    expect(page.get_by_text("Step 414, chosen above", exact=False)).not_to_contain_text("the whole")
    screenshot(page, "trace-AR")

    kept = page.url
    other = page.context.new_page()
    other.goto(kept)
    expect(other.locator(".st-key-trace_answer_S")).to_contain_text("1.00×")
    expect(other.get_by_text("Step 414, operation by operation")).to_be_visible()
    expect(other.get_by_text("Step 414, chosen above", exact=False)).to_be_visible()
    assert query(other) == query(page)
    before = page.get_by_text("Step 414, chosen above", exact=False).inner_text()
    assert other.get_by_text("Step 414, chosen above", exact=False).inner_text() == before


def test_a_click_on_a_worker_puts_it_in_focus(address: Callable[[str], str], page: Page) -> None:
    page.goto(address("ST"))
    expect(page.locator(".st-key-trace_heat .nsewdrag").first).to_be_visible()

    def click_a_cell() -> bool:
        # Stage 3, data-parallel rank 1: the last row of four, the second column of two.
        spot = page.evaluate(
            """() => {
                const area = document.querySelector('.st-key-trace_heat .nsewdrag');
                if (!area) return null;
                area.scrollIntoView({block: 'center'});
                const b = area.getBoundingClientRect();
                return {x: b.x + b.width * 0.75, y: b.y + b.height * 0.875};
            }"""
        )
        if spot is None:
            return False
        page.mouse.move(spot["x"] - 3, spot["y"])
        page.mouse.click(spot["x"], spot["y"])
        page.wait_for_timeout(1_500)
        return query(page).get("rank") == ["7"]

    until(click_a_cell, "the rank in the address")
    expect(page.get_by_label("Rank", exact=True)).to_have_value("7")


def test_the_step_can_be_taken_to_perfetto(address: Callable[[str], str], page: Page) -> None:
    page.goto(f"{address('ST')}&trace_step=23")
    button = page.get_by_role("button", name="Step 23 for Perfetto")
    expect(button).to_be_visible()
    with page.expect_download() as started:
        button.click()
    assert started.value.suggested_filename == "steptax-ST-step-23.json"
    made = json.loads(Path(started.value.path()).read_text())
    assert len([event for event in made["traceEvents"] if event["ph"] == "X"]) == 2 * 212


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_every_control_has_a_name_and_the_page_its_width(
    address: Callable[[str], str],
    browser: Browser,
    screenshot: Callable[..., None],
    width: int,
    scheme: Any,
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda problem: errors.append(str(problem)))
    page.goto(f"{address('AR')}&fix.ranks=true&fix.kernel=true")
    expect(page.locator(".st-key-trace_gantt .js-plotly-plot").first).to_be_visible()
    expect(page.locator(".st-key-trace_answer_S")).to_contain_text("now 1.97×")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('input, button, [role=slider], [role=combobox]')]
            .filter(e => e.offsetParent !== null && e.closest('.stMain'))
            .filter(e => !e.closest('.modebar') && !e.closest('[data-testid=stDataFrame]'))
            .filter(e => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')
                || e.textContent.trim() || e.title || (e.labels && e.labels.length)))
            .map(e => e.outerHTML.slice(0, 160))"""
    )
    assert nameless == []
    for key in ("heat", "types", "stages", "dps", "series", "worst", "gantt"):
        described = page.locator(f".st-key-trace_{key}_figure [aria-label]").first
        expect(described).to_be_attached()
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width
    screenshot(page, f"trace-AR-{width}-{scheme}")
    assert errors == []
    context.close()
