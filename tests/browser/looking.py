"""What is looked at on a page in a real browser: that it is whole, and usable by everyone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from playwright.sync_api import Page

WIDE, NARROW = (1440, 900), (390, 844)
#: What a look is called after, the window, the colours, and whether axe looks at more than
#: contrast: what a page is built of is the same in both colours.
LOOKS = (
    ("wide", WIDE, "light", True),
    ("narrow", NARROW, "light", True),
    ("wide", WIDE, "dark", False),
)
#: More than any page is tall; Chromium draws no picture of more than 16,384 pixels.
TALLEST = 16_000
#: Faults that axe calls serious or critical are ours to mend; these lie in Streamlit's own parts:
#: the marks under the pointer in the small line of a number, which the number itself tells.
NOT_OURS = (("svg-img-alt", ".metric_chart_"),)
_TRUNCATED = """() => [...document.querySelectorAll('h1, h2, h3, h4, h5, p, button')]
    .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflow === 'hidden'
                 && getComputedStyle(e).textOverflow !== 'ellipsis')
    .map(e => e.textContent.slice(0, 80))"""
_HIDDEN_BELOW = """() => { const main = document.querySelector('[data-testid=stMain]');
    return main ? main.scrollHeight - main.clientHeight : 0; }"""


def open_page(page: Page, address: str, path: str, query: str = "") -> None:
    """Open a page by the name of its address and wait until it is drawn."""
    page.goto(f"{address}/{'' if path == 'executive' else path}{query}")
    settle(page)


def settle(page: Page) -> None:
    """Wait until the page is drawn: nothing runs, no skeleton, figures have their bars."""
    page.wait_for_selector("[data-testid=stMain] [data-testid=stElementContainer] p:visible")
    page.wait_for_function(
        """() => !document.querySelector('[data-testid="stSkeleton"]')
           && document.querySelector('[data-test-script-state]')?.dataset.testScriptState
              !== 'running'"""
    )
    page.wait_for_timeout(800)


def faults(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """What axe finds serious or critical, and where; by ``rules`` alone where any is named."""
    from axe_playwright_python.sync_playwright import Axe

    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = list(rules)
    found: list[dict[str, Any]] = Axe().run(page, options=options).response["violations"]
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
    page: Page, path: str, save: Callable[[Page, str], None], *, is_at_rest: bool = True
) -> list[str]:
    """Everything that is wrong with what the tab shows, wide and narrow, light and dark; saves all.

    The page is loaded once: a browser lays it out anew when its window changes, as on a telephone
    that is turned, and draws it in other colours when its system does.
    """
    wrong = []
    for size, (width, height), scheme, in_full in LOOKS:
        name = f"{path}-{size}-{scheme}"
        page.set_viewport_size({"width": width, "height": height})
        colour(page, scheme, is_at_rest=is_at_rest)
        wrong += [f"{name}: {text}" for text in faults(page, () if in_full else ["color-contrast"])]
        across = int(page.evaluate("() => document.documentElement.scrollWidth"))
        if across > width:
            wrong.append(f"{name}: is {across} px across in a window of {width}")
        if page.locator('[data-testid="stException"]').count():
            wrong.append(f"{name}: {page.locator('[data-testid=stException]').first.inner_text()}")
        wrong += [f"{name}: cut off: {text}" for text in page.evaluate(_TRUNCATED)]
        if left := unroll(page):
            wrong.append(f"{name}: {left} px of the page are below its picture")
        save(page, name)
    page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
    colour(page, "light", is_at_rest=is_at_rest)
    return wrong


def unroll(page: Page) -> int:
    """Make the window as tall as the page, which scrolls inside of it; gives the pixels not seen.

    Figures that are drawn once they are in sight make the page taller.
    """
    for _ in range(3):
        below = int(page.evaluate(_HIDDEN_BELOW))
        size = page.viewport_size
        assert size is not None
        if below <= 0 or size["height"] >= TALLEST:
            return max(0, below)
        tall = min(size["height"] + below, TALLEST)
        page.set_viewport_size({"width": size["width"], "height": tall})
        page.wait_for_timeout(500)
    return max(0, int(page.evaluate(_HIDDEN_BELOW)))


def colour(page: Page, scheme: str, *, is_at_rest: bool = True) -> None:
    """Draw the page in the colours of ``scheme``; one at rest is sent its figures anew for them."""
    assert scheme in ("light", "dark")
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.wait_for_timeout(300)
    page.wait_for_function(
        """(scheme) => { const app = document.querySelector('.stApp');
             return !app || getComputedStyle(app).colorScheme.includes(scheme); }""",
        arg=scheme,
    )
    if is_at_rest:
        page.wait_for_function(
            """() => document.querySelector('[data-test-script-state]')?.dataset.testScriptState
                     !== 'running'"""
        )
    page.wait_for_timeout(500)
