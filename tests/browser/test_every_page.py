"""Every page, wide and narrow, light and dark: drawn, and usable by everyone.

Writes what it saw to ``screenshots/`` (``make screenshots``), for a person to look at.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from steptax.app.demo.company import make_company
from steptax.app.shell import PAGES
from tests.browser.looking import WIDE, colour, look, open_page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
#: The job that the pages look at, whose one device gets hot after its step 836.
JOB = "llm-70b-pretrain"
QUERY = f"?job={JOB}"
BEFORE_AND_AFTER = f"{QUERY}&a={JOB}&a_steps=0-836&b={JOB}&b_steps=837-"
SCREENSHOTS = ROOT / "screenshots"
#: Contrast that what shows the keyboard's place needs (WCAG 2.2, 1.4.11 and 2.4.13), and of how
#: much of the outline of what has it: a field draws its mark around more than itself.
RING_CONTRAST, RING_SHARE = 3.0, 0.5
#: So often a ring is looked for, 60 ms apart, before it counts as missing.
FADES = 150


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made-up company of the demo, up to now."""
    root = tmp_path_factory.mktemp("every-page") / "lake"
    make_company(root, until_us=time.time_ns() // 1000)
    return root


@pytest.fixture(scope="module")
def address(lake: Path, served: Callable[..., str]) -> str:
    """One server for all tests here."""
    return served(lake)


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """A tab that waits for pages of a machine that does more than this."""
    context = browser.new_context(viewport={"width": WIDE[0], "height": WIDE[1]})
    page = context.new_page()
    yield page
    context.close()


class Halted:
    """Between server and browser: what comes after the words of a page that is read waits here."""

    def __init__(self, words: str) -> None:
        self._words, self._left, self._go_on = words.encode(), -1, False
        self._waiting: list[str | bytes] = []
        self._page: WebSocketRoute | None = None

    def between(self, page: WebSocketRoute) -> None:
        """Take over a connection that ``page`` opens."""
        self._page = page
        page.connect_to_server().on_message(self._take)

    def go_on(self) -> None:
        """Hand on what has waited, and all that comes."""
        self._go_on = True
        for message in self._waiting:
            self._hand_on(message)

    def _take(self, message: str | bytes) -> None:
        if self._left == 0 and not self._go_on:
            self._waiting.append(message)
            return
        self._left -= self._left > 0
        if isinstance(message, bytes) and self._words in message:
            self._left = 1  # the grey under the words comes next
        self._hand_on(message)

    def _hand_on(self, message: str | bytes) -> None:
        assert self._page is not None
        self._page.send(message)


def test_a_page_that_is_being_read_says_so(
    address: str, browser: Browser, tab: Page, screenshot: Callable[[Page, str], None]
) -> None:
    asked = f"{address}/job{QUERY}"
    # What a browser shows before it has read any script.
    bare = browser.new_context().new_page()
    bare.route("**/static/js/*", lambda route: route.abort())
    bare.goto(asked)
    expect(bare.locator("#opening")).to_contain_text("Job drill-down")
    screenshot(bare, "job-opening-wide-light")
    bare.context.close()
    # What a reader sees for a moment stands still for as long as it is looked at.
    halted = Halted("Reading the steps of the job")
    tab.route_web_socket("**/_stcore/stream", halted.between)
    tab.goto(asked)
    reading = tab.get_by_text("Reading the steps of the job")
    expect(reading).to_be_visible()
    expect(tab.get_by_test_id("stSkeletonElement")).to_be_visible()
    expect(tab.locator("#opening")).to_be_hidden()
    wrong = look(tab, "job-loading", screenshot, is_at_rest=False)
    halted.go_on()
    expect(tab.locator(".st-key-kpis")).to_be_visible()
    expect(reading).to_have_count(0)
    assert not wrong, "\n".join(wrong)


def test_every_page_is_drawn_and_usable(
    address: str, tab: Page, screenshot: Callable[[Page, str], None]
) -> None:
    wrong: list[str] = []
    for path in PAGES:
        open_page(tab, address, path, BEFORE_AND_AFTER if path == "compare" else QUERY)
        wrong += look(tab, path, screenshot)
    assert not wrong, "\n".join(wrong)


def pixels(page: Page, box: tuple[int, int, int, int] | None = None) -> np.ndarray:
    """Relative luminance of each pixel in the window, or in ``box`` (left, top, right, bottom)."""
    left, top, right, bottom = box or (0, 0, *WIDE)
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    shot = Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")
    colour = np.asarray(shot) / 255
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return np.asarray(linear @ np.array([0.2126, 0.7152, 0.0722]))


def unmarked(page: Page, at_rest: np.ndarray) -> str | None:
    """What has the keyboard without showing it; ``at_rest`` is the window with nothing chosen."""
    name, x, y, width, height = page.evaluate(
        """() => { const e = document.activeElement, box = e.getBoundingClientRect();
            return [e.getAttribute('aria-label') || e.innerText.slice(0, 40) || e.tagName,
                    box.x, box.y, box.width, box.height]; }"""
    )
    if not 0 < height < WIDE[1] / 2:
        return None  # what scrolls has the keyboard too, and is all that there is to see
    left, top = max(0, int(x) - 6), max(0, int(y) - 6)
    right, bottom = min(WIDE[0], int(x + width) + 7), min(WIDE[1], int(y + height) + 7)
    then = at_rest[top:bottom, left:right]
    needed = RING_SHARE * 2 * (width + height)
    marked = 0
    for _ in range(FADES):  # what fades in is seen when it has, and on a busy machine that is late
        page.wait_for_timeout(60)
        now = pixels(page, (left, top, right, bottom))
        contrast = (np.maximum(now, then) + 0.05) / (np.minimum(now, then) + 0.05)
        marked = int((contrast >= RING_CONTRAST).sum())
        if marked >= needed:
            return None
    return f"{name!r}: {marked} pixels, not {needed:.0f}"


def test_a_rank_is_chosen_by_the_keyboard_alone_and_its_place_is_seen(
    address: str, tab: Page
) -> None:
    open_page(tab, address, "job", f"{QUERY}&live=false")
    focused = "() => document.activeElement?.getAttribute('aria-label') || ''"
    colour(tab, "dark")
    at_rest, wrong, stops = pixels(tab), [], 0
    while tab.evaluate("() => document.activeElement.tagName") != "SUMMARY":
        tab.keyboard.press("Tab")
        stops += 1
        assert stops < 40
        wrong.append(("dark", unmarked(tab, at_rest)))
    # Back the same way in the other colours, so that the page is loaded once.
    tab.evaluate("() => document.activeElement.blur()")
    colour(tab, "light")
    at_rest = pixels(tab)
    for _ in range(stops - 1):
        tab.keyboard.press("Shift+Tab")
        wrong.append(("light", unmarked(tab, at_rest)))
    assert len(wrong) > 30  # navigation, strip and card, twice
    assert not [one for one in wrong if one[1] is not None]
    for _ in range(80):
        tab.keyboard.press("Tab")
        if tab.evaluate(focused) == "Rank":
            break
    assert tab.evaluate(focused) == "Rank"
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
