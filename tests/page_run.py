"""Pages without a browser: a run of one of them, as a link opens it."""

from __future__ import annotations

import functools
from pathlib import Path

from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from tests.patience import PATIENCE_S

MAIN = Path(__file__).resolve().parents[1] / "app" / "main.py"

# Each AppTest reads what every installed package says of itself, a third of the processor time of
# a page; packages do not change while tests run.
manifest_scanner.scan_component_manifests = functools.cache(
    manifest_scanner.scan_component_manifests
)


def open_page(page: str | None = None, **parameters: str) -> AppTest:
    """Run a page, or the first one, with the given parameters in its address.

    No other page runs before it, as none does where somebody follows a link: files of pages are
    named as their addresses are, by which Streamlit finds a page before it has run any.
    """
    at = AppTest.from_file(str(MAIN), default_timeout=PATIENCE_S)
    for key, value in parameters.items():
        at.query_params[key] = value
    return (at if page is None else at.switch_page(page)).run()
