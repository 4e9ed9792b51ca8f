"""Every page and its empty state, wide and narrow, light and dark: drawn, and usable by everyone.

Writes what it saw to ``screenshots/`` (``make screenshots``), for a person to look at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from steptax.app.demo.company import PRICE, make_company
from steptax.app.lake import Lake

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
#: The job that the pages look at, whose one device gets hot after its step 836.
JOB = "llm-70b-pretrain"
QUERY = f"?job={JOB}"
BEFORE_AND_AFTER = f"{QUERY}&a={JOB}&a_steps=0-836&b={JOB}&b_steps=837-"
SCREENSHOTS = ROOT / "screenshots"
PAGES = (
    "executive",
    "fleet",
    "job",
    "compare",
    "whatif",
    "procurement",
    "health",
    "reference",
)
WIDE, NARROW = (1440, 900), (390, 844)
SCHEMES = ("light", "dark")
#: Faults that axe calls serious or critical are ours to mend; these lie in Streamlit's own parts:
#: the marks under the pointer in the small line of a number, which the number itself tells.
NOT_OURS = (("svg-img-alt", ".metric_chart_"),)
_TRUNCATED = """() => [...document.querySelectorAll('h1, h2, h3, h4, h5, p, button')]
    .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflow === 'hidden'
                 && getComputedStyle(e).textOverflow !== 'ellipsis')
    .map(e => e.textContent.slice(0, 80))"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made-up company of the demo, up to now."""
    root = tmp_path_factory.mktemp("every-page") / "lake"
    make_company(root, until_us=time.time_ns() // 1000)
    return root


@pytest.fixture(scope="module")
def address(lake: Path, served: Callable[..., str]) -> str:
    """One server for all tests here."""
    return served(lake, STEPTAX_PRICE_USD_PER_GPU_HOUR=str(PRICE))


@pytest.fixture
def tab(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    """A tab in the scheme that a test asks for by its parameter."""
    context = browser.new_context(
        viewport={"width": WIDE[0], "height": WIDE[1]},
        color_scheme=getattr(request, "param", "light"),
    )
    page = context.new_page()
    page.set_default_timeout(120_000)
    yield page
    context.close()


def settle(page: Page) -> None:
    """Wait until the page is drawn: nothing runs, no skeleton, figures have their bars."""
    page.wait_for_selector("[data-testid=stMain] [data-testid=stElementContainer] p:visible")
    page.wait_for_function(
        """() => !document.querySelector('[data-testid="stSkeleton"]')
           && document.querySelector('[data-test-script-state]')?.dataset.testScriptState
              !== 'running'"""
    )
    page.wait_for_timeout(800)


def faults(page: Page) -> list[str]:
    """What axe finds serious or critical, and where."""
    from axe_playwright_python.sync_playwright import Axe

    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['help']}: {node['target']} "
        f"{[one.get('message') for one in node['any'][:1]]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
        if not any(
            one["id"] == rule and str(node["target"][0]).startswith(part) for rule, part in NOT_OURS
        )
    ]


def look(
    page: Page, path: str, scheme: str, save: Callable[[Page, str], None], *, is_bare: bool = False
) -> list[str]:
    """Everything that is wrong with what the tab shows, wide and then narrow; saves both.

    The page is loaded once: a browser lays it out anew when its window changes, as on a telephone
    that is turned. Contrast is the same at each width, so axe looks at all of it in the light only.
    """
    wrong = []
    for size, (width, height) in (("wide", WIDE), ("narrow", NARROW)):
        name = f"{path}-{size}-{scheme}"
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(300)
        if size == "wide" or (scheme == "light" and not is_bare):
            wrong += [f"{name}: {fault}" for fault in faults(page)]
        across = int(page.evaluate("() => document.documentElement.scrollWidth"))
        if across > width:
            wrong.append(f"{name}: is {across} px across in a window of {width}")
        if page.locator('[data-testid="stException"]').count():
            wrong.append(f"{name}: {page.locator('[data-testid=stException]').first.inner_text()}")
        wrong += [f"{name}: cut off: {text}" for text in page.evaluate(_TRUNCATED)]
        unroll(page)
        save(page, name)
    page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    return wrong


def unroll(page: Page) -> None:
    """Make the window as tall as the page, which scrolls inside of it, so that all is seen."""
    size = page.viewport_size
    assert size is not None
    tall = page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size(
        {"width": size["width"], "height": min(max(tall, size["height"]), 9_000)}
    )
    page.wait_for_timeout(500)


def open_page(page: Page, address: str, path: str, query: str = "") -> None:
    page.goto(f"{address}/{'' if path == 'executive' else path}{query}")
    settle(page)


@pytest.mark.parametrize("tab", SCHEMES, indirect=True)
def test_every_page_is_drawn_and_usable(
    address: str,
    tab: Page,
    screenshot: Callable[[Page, str], None],
    request: pytest.FixtureRequest,
) -> None:
    scheme = request.node.callspec.params["tab"]
    wrong: list[str] = []
    for path in PAGES:
        open_page(tab, address, path, BEFORE_AND_AFTER if path == "compare" else QUERY)
        wrong += look(tab, path, scheme, screenshot)
    assert not wrong, "\n".join(wrong)


def test_every_empty_page_says_what_to_connect(
    tmp_path: Path,
    served: Callable[..., str],
    tab: Page,
    screenshot: Callable[[Page, str], None],
) -> None:
    # Pages without a job of their own are as they always are.
    address = served(Lake(tmp_path / "lake", create=True).root)
    wrong: list[str] = []
    for path in ("executive", "whatif", "procurement"):
        open_page(tab, address, path)
        wrong += look(tab, f"{path}-empty", "light", screenshot, is_bare=True)
    assert not wrong, "\n".join(wrong)


def test_a_rank_is_chosen_by_the_keyboard_alone(address: str, tab: Page) -> None:
    open_page(tab, address, "job", f"{QUERY}&live=false")
    focused = "() => document.activeElement?.getAttribute('aria-label') || ''"
    for _ in range(80):
        tab.keyboard.press("Tab")
        if tab.evaluate(focused) == "Rank":
            break
    assert tab.evaluate(focused) == "Rank"
    outline = tab.evaluate(
        """() => { const e = document.activeElement.closest('[data-baseweb], div');
                   const s = getComputedStyle(e);
                   return s.outlineStyle + s.boxShadow + s.borderColor; }"""
    )
    assert outline
    tab.keyboard.press("Control+A")
    tab.keyboard.type("3")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**rank=3**")
    expect(tab.locator(".st-key-timeline").first).to_contain_text("chosen · 3")


_FIRST_NUMBER = """
new MutationObserver((_, watch) => {
  const seen = [...document.querySelectorAll('[data-testid="stMetricValue"]')]
    .some(e => /\\d/.test(e.textContent));
  if (!seen || window.firstNumberMs) return;
  window.firstNumberMs = performance.now();
  watch.disconnect();
}).observe(document, {childList: true, subtree: true, characterData: true});
"""


def test_first_paint_and_first_number_are_stated(
    address: str, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = []
    for path in ("executive", "job"):
        for visit in ("first", "again"):
            if visit == "first":
                context = browser.new_context(viewport={"width": WIDE[0], "height": WIDE[1]})
            page = context.new_page()
            page.set_default_timeout(120_000)
            page.add_init_script(_FIRST_NUMBER)
            page.goto(f"{address}/{'' if path == 'executive' else path}{QUERY}")
            number_ms = page.wait_for_function("() => window.firstNumberMs").json_value()
            paint_ms = page.evaluate(
                "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
            )
            assert 0 < paint_ms < number_ms
            lines.append(
                f"{path}, {visit} visit: first contentful paint {paint_ms / 1e3:.2f} s, "
                f"first number {number_ms / 1e3:.2f} s"
            )
            page.close()
        context.close()
    SCREENSHOTS.mkdir(exist_ok=True)
    (SCREENSHOTS / "first-paint.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with capsys.disabled():
        print("", *lines, sep="\n  ")  # noqa: T201 - the figures are for whoever runs this
