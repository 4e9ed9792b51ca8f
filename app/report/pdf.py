"""HTML to PDF: by a headless Chromium where there is one, else by WeasyPrint."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from steptax.app.errors import SteptaxError, UserError, install_hint

#: Names of the browser, in the order in which they are tried.
BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
#: Names the browser, where it is not on the path.
BROWSER_ENV = "STEPTAX_CHROMIUM"
TIMEOUT_S = 120.0
_PAGE = re.compile(rb"/Type\s*/Page\b")


def browser() -> str | None:
    """The browser that prints; None where there is none.

    UserError where the environment names one that is not there.
    """
    named = os.environ.get(BROWSER_ENV)
    if named:
        found = shutil.which(named)
        if found is None:
            raise UserError(
                f"there is no browser {named!r}",
                where=BROWSER_ENV,
                hint="name an executable, or leave the variable empty",
            )
        return found
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def as_pdf(html: str) -> bytes:
    """``html`` on paper.

    Raises:
        UserError: there is nothing to print with.
        SteptaxError: the browser failed.
    """
    found = browser()
    return _by_browser(found, html) if found is not None else by_library(html)


def pages_of(content: bytes) -> int:
    """How many pages a file of ``as_pdf`` has; 0 where its objects are packed."""
    return len(_PAGE.findall(content))


def _by_browser(path: str, html: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="steptax-") as folder:
        page, paper = Path(folder) / "report.html", Path(folder) / "report.pdf"
        page.write_text(html, encoding="utf-8")
        command = [
            path,
            "--headless",
            "--disable-gpu",
            "--disable-extensions",
            "--disable-background-networking",
            "--no-first-run",
            "--no-default-browser-check",
            "--no-pdf-header-footer",
            f"--user-data-dir={folder}/profile",
            f"--print-to-pdf={paper}",
        ]
        # As root Chromium does not start with a sandbox. The page has no script.
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--no-sandbox")
        try:
            done = subprocess.run(
                [*command, page.as_uri()],
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            said = done.stderr.decode(errors="replace").strip()
        except subprocess.TimeoutExpired:
            said = f"it took longer than {TIMEOUT_S:g} s"
        if paper.is_file() and paper.stat().st_size:
            return paper.read_bytes()
    raise SteptaxError(
        f"the browser printed nothing: {said[-300:] or 'it says nothing'}",
        where=path,
        hint=f"use --format html and print that, or name another browser in {BROWSER_ENV}",
    )


def by_library(html: str) -> bytes:
    """The same by WeasyPrint; UserError where it is not there either."""
    try:
        import weasyprint
    except (ImportError, OSError):  # the library without Pango, which it draws with
        raise UserError(
            "printing needs Chromium, Chrome or Edge, or the library WeasyPrint with Pango",
            where="--format pdf",
            hint="apt-get install chromium, or name it in STEPTAX_CHROMIUM; or "
            f"{install_hint('reports')} and apt-get install libpango-1.0-0 libpangoft2-1.0-0; "
            "or use --format html and print that",
        ) from None
    made: bytes = weasyprint.HTML(string=html).write_pdf()
    return made
