"""Every page and its empty state, wide and narrow, light and dark: drawn, and usable by everyone.

Writes what it saw to ``screenshots/`` (``make screenshots``), for a person to look at.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.connectors.base import Options

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PAGES = ("executive", "fleet", "job", "whatif", "procurement", "health", "reference")
SIZES = {"wide": (1440, 900), "narrow": (390, 844)}
SCHEMES = ("light", "dark")
#: Faults that axe calls serious or critical are ours to mend; these lie in Streamlit's own parts.
NOT_OURS: tuple[str, ...] = ()
_TRUNCATED = """() => [...document.querySelectorAll('h1, h2, h3, h4, h5, p, button')]
    .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflow === 'hidden'
                 && getComputedStyle(e).textOverflow !== 'ellipsis')
    .map(e => e.textContent.slice(0, 80))"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made job of the documents, its devices, accounting and offers."""
    folder = tmp_path_factory.mktemp("every-page")
    runpy.run_path(str(ROOT / "docs" / "example_job.py"))["main"](folder / "examples")
    lake = Lake(folder / "lake", create=True)
    model = "NVIDIA H100 80GB HBM3"
    for kind, name, options in (
        ("steps", "llm-7b", Options(gpu_model=model)),
        ("nvidia-smi", "llm-7b-gpus", Options(extra={"host": "node-0", "timezone": "UTC"})),
        ("jobs", "jobs", Options()),
        ("prices", "offers", Options()),
    ):
        ingest_file(lake, kind, folder / "examples" / f"{name}.csv", options)
    return lake.root


@pytest.fixture(params=[(s, c) for s in SIZES for c in SCHEMES], ids="-".join)
def tab(request: pytest.FixtureRequest, browser: Browser) -> Iterator[tuple[str, Page]]:
    """A tab of one size in one scheme, and what both are called."""
    size, scheme = request.param
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=1
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield f"{size}-{scheme}", page
    context.close()


def settle(page: Page) -> None:
    """Wait until the page is drawn: nothing runs, no skeleton, figures have their bars."""
    page.wait_for_selector("[data-testid=stMain] [data-testid=stElementContainer] p")
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
        if one["impact"] in ("serious", "critical") and one["id"] not in NOT_OURS
        for node in one["nodes"][:3]
    ]


def look(page: Page, name: str, save: Callable[[Page, str], None]) -> list[str]:
    """Everything that is wrong with what the tab shows."""
    wrong = [f"{name}: {fault}" for fault in faults(page)]
    width = page.viewport_size["width"] if page.viewport_size else 0
    across = int(page.evaluate("() => document.documentElement.scrollWidth"))
    if across > width:
        wrong.append(f"{name}: is {across} px across in a window of {width}")
    if page.locator('[data-testid="stException"]').count():
        wrong.append(f"{name}: {page.locator('[data-testid=stException]').first.inner_text()}")
    wrong += [f"{name}: cut off: {text}" for text in page.evaluate(_TRUNCATED)]
    size = page.viewport_size
    unroll(page)
    save(page, name)
    if size is not None:
        page.set_viewport_size(size)
    return wrong


def unroll(page: Page) -> None:
    """Make the window as tall as the page, which scrolls inside of it, so that all is seen."""
    size = page.viewport_size
    assert size is not None
    tall = page.evaluate("() => document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size(
        {"width": size["width"], "height": min(max(tall, size["height"]), 9_000)}
    )
    page.wait_for_timeout(800)


def test_every_page_is_drawn_and_usable(
    lake: Path,
    serve: Callable[..., str],
    tab: tuple[str, Page],
    screenshot: Callable[[Page, str], None],
) -> None:
    name, page = tab
    url = serve(lake, STEPTAX_PRICE_USD_PER_GPU_HOUR="2.50")
    wrong: list[str] = []
    for path in PAGES:
        page.goto(f"{url}/{'' if path == 'executive' else path}?job=llm-7b")
        settle(page)
        wrong += look(page, f"{path}-{name}", screenshot)
    assert not wrong, "\n".join(wrong)


def test_every_empty_page_says_what_to_connect(
    tmp_path: Path, serve: Callable[..., str], page: Page, screenshot: Callable[[Page, str], None]
) -> None:
    url = serve(Lake(tmp_path / "lake", create=True).root)
    wrong: list[str] = []
    for path in PAGES:
        page.goto(f"{url}/{'' if path == 'executive' else path}")
        settle(page)
        wrong += look(page, f"{path}-empty", screenshot)
    assert not wrong, "\n".join(wrong)
