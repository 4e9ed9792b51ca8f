"""What a browser gets before a page says its first word, and where there is no such page.

Streamlit's own shell is white until its scripts have been read and the first words of a page have
come. Ours says what it is at once, in both colour schemes, and stands until something is drawn. It
is Streamlit's file with a few lines more; one that is not as expected is served as it is.
"""

from __future__ import annotations

import html
from functools import cache
from pathlib import Path
from typing import Final

import streamlit
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from steptax.app.theme import DARK, LIGHT

#: Address of every page and its title. The first one also answers at the root.
PAGES: Final = {
    "executive": "Executive review",
    "fleet": "Fleet",
    "job": "Job drill-down",
    "compare": "Compare",
    "whatif": "What-if",
    "procurement": "Procurement",
    "health": "Data & health",
    "reference": "Reference figures",
}
HOME: Final = "executive"
#: What is not a page: Streamlit's own addresses, and those of its login.
_SERVED: Final = ("static", "_stcore", "media", "component", "app", "auth", "oauth2callback")
_STATIC: Final = Path(streamlit.__file__).resolve().parent / "static"

# Headings go by rank, and what a page says is larger than its name: here, so that no page is drawn
# in Streamlit's sizes first.
_STYLE: Final = f"""
body {{ margin: 0; }}
#opening, #lost {{ font: 1rem/1.5 "Source Sans", system-ui, sans-serif; color: {LIGHT.text}; }}
#opening {{ position: fixed; z-index: 1; inset: 5rem 5rem auto; pointer-events: none; }}
#opening b, #lost h1 {{ display: block; font-size: 1.25rem; font-weight: 600; margin: 0; }}
#opening i {{ display: block; height: 1rem; margin-top: 1rem; border-radius: 0.4rem;
  background: {LIGHT.border}; animation: opening 1.6s ease-in-out infinite; }}
#lost {{ margin: 5rem auto; max-width: 40rem; padding: 0 1rem; }}
#lost a {{ color: {LIGHT.primary}; }}
.stMain h1 {{ font-size: 1.25rem !important; padding: 0 !important; margin: 0 !important; }}
.stMain h2 {{ font-size: 1.75rem !important; }}
.stMain h3 {{ font-size: 1.25rem !important; }}
@keyframes opening {{ 50% {{ opacity: 0.45; }} }}
body:has([data-testid="stMain"] [data-testid="stElementContainer"]) #opening {{ display: none; }}
@media (max-width: 640px) {{
  #opening {{ inset: 4.5rem 1rem auto; }}
  .stMain h2 {{ font-size: 1.4rem !important; }}
}}
@media (prefers-reduced-motion: reduce) {{ #opening i {{ animation: none; }} }}
@media (prefers-color-scheme: dark) {{
  body {{ background: {DARK.background}; }}
  #opening, #lost {{ color: {DARK.text}; }}
  #opening i {{ background: {DARK.border}; }}
  #lost a {{ color: {DARK.primary}; }}
}}
"""
_BARS: Final = "".join(f'<i style="width: {width}%"></i>' for width in (90, 60, 75))


@cache
def opening(title: str) -> str:
    """The page that a browser gets at the address of the page ``title``."""
    text = (_STATIC / "index.html").read_text(encoding="utf-8")
    said = html.escape(title)
    return (
        text.replace("<title>Streamlit</title>", f"<title>{said} · Steptax</title>")
        .replace("</head>", f"<style>{_STYLE}</style></head>")
        .replace(
            '<div id="root"></div>',
            f'<div id="opening" role="status"><b>{said}</b>Opening the page …{_BARS}</div>'
            '<div id="root"></div>',
        )
    )


def lost(path: str) -> str:
    """What is said at an address that is none: where the pages are."""
    # Relative: a proxy may serve this below an address of its own.
    up = "../" * (path.count("/") - 1) or "./"
    links = "".join(
        f'<li><a href="{up}{"" if address == HOME else address}">{html.escape(title)}</a></li>'
        for address, title in PAGES.items()
    )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="UTF-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>No such page · Steptax</title><style>{_STYLE}</style></head>"
        '<body><main id="lost"><h1>There is no page at this address</h1>'
        f"<p><code>{html.escape(path[:200])}</code> may be mistyped, or from a newer or older "
        f"Steptax. The pages are:</p><ul>{links}</ul></main></body></html>"
    )


class Shell:
    """ASGI middleware: opens the pages; ``own`` are further addresses that are none of them."""

    def __init__(self, app: ASGIApp, own: tuple[str, ...] = ()) -> None:
        self._app = app
        self._own = frozenset(own)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        path = scope.get("path", "")
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            answer = self._answer(path, scope.get("query_string", b"").decode("latin-1"))
            if answer is not None:
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _answer(self, path: str, query: str) -> HTMLResponse | RedirectResponse | None:
        name = path.removeprefix("/")
        if name == HOME:
            # Streamlit knows its first page at the root only.
            return RedirectResponse(f"./?{query}" if query else "./", status_code=307)
        if name == "" or name in PAGES:
            headers = {"Cache-Control": "no-cache"}
            return HTMLResponse(opening(PAGES[name or HOME]), headers=headers)
        if self._is_served(path):
            return None
        return HTMLResponse(lost(path), status_code=404, headers={"Cache-Control": "no-cache"})

    def _is_served(self, path: str) -> bool:
        """Whether somebody behind this answers; also where only its slashes are put right."""
        if path in self._own or path.endswith("/") or path.startswith("//") or "_stcore" in path:
            return True
        first = path.split("/")[1]
        return first in _SERVED or (path.count("/") == 1 and (_STATIC / first).is_file())
