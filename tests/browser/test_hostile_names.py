"""Hostile names in a real browser: nothing of them runs, loads or leads away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Page, expect

from steptax.app.lake import Lake
from tests.hostile import LURE, NAMES
from tests.team_lake import store_team

pytestmark = pytest.mark.browser

#: What an attack leaves behind, in the page itself.
_FOUND = f"""() => ({{
  ran: window.pwned === undefined ? 0 : 1,
  links: [...document.querySelectorAll('a')]
    .map(a => a.getAttribute('href') || a.getAttribute('xlink:href') || '')
    .filter(h => h.includes('{LURE}') || h.startsWith('javascript:')),
  images: [...document.querySelectorAll('img, image, iframe, object, embed')]
    .map(i => i.getAttribute('src') || i.getAttribute('href') || i.getAttribute('data') || '')
    .filter(s => s === 'x' || s.includes('{LURE}')),
  math: document.querySelectorAll('.katex').length,
}})"""


def test_names_are_text_on_every_page(
    page: Page, serve: Callable[..., str], tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    for day, word in enumerate(NAMES.values()):
        store_team(lake, word, begin_us=1_772_323_200_000_000 + day * 86_400_000_000)
    url = serve(lake.root, STEPTAX_PRICE_USD_PER_GPU_HOUR="2")
    away: list[str] = []
    page.on("request", lambda r: urlsplit(r.url).netloc.endswith(LURE) and away.append(r.url))
    page.on("dialog", lambda dialog: (away.append(dialog.message), dialog.dismiss()))
    runs = [quote(f"{word}-run") for word in NAMES.values()]
    asked = [f"job?job={run}&rank=1&step=3" for run in runs]
    asked += [f"compare?a={a}&b={b}" for a, b in zip(runs[::2], runs[1::2], strict=True)]
    for path in ("", "fleet", "health", "whatif", "procurement", *asked):
        page.goto(f"{url}/{path}")
        expect(page.get_by_test_id("stMain")).to_be_visible()
        page.wait_for_function("() => !document.querySelector('[data-testid=\"stSkeleton\"]')")
        page.wait_for_selector(".st-key-strip")
        # Also a name with a line end in it is chosen by an address, so that both are compared.
        shown = (
            ".st-key-sentence" if "compare" in path else ".st-key-sentence, .st-key-card, h3, h5"
        )
        page.wait_for_selector(shown)
        page.wait_for_timeout(700)  # figures draw after the texts
        assert page.evaluate(_FOUND) == {"ran": 0, "links": [], "images": [], "math": 0}, path
    assert away == []
