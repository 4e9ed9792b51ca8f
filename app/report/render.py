"""A report in any of its formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from steptax.app.errors import UserError
from steptax.app.report.files import as_csv, as_xlsx
from steptax.app.report.html import BRIEF_PX, as_html
from steptax.app.report.models import Report
from steptax.app.report.pdf import as_pdf, browser, pages_of

FORMATS: Mapping[str, Callable[[Report], bytes]] = {
    "html": lambda report: as_html(report).encode(),
    "pdf": lambda report: _paper(report),
    "csv": lambda report: as_csv(report).encode(),
    "xlsx": as_xlsx,
}


def _paper(report: Report) -> bytes:
    """On paper; a brief in the largest letters with which it is one page."""
    made = b""
    for size_px in BRIEF_PX if report.is_brief else BRIEF_PX[:1]:
        made = as_pdf(as_html(report, size_px))
        if pages_of(made) <= 1:
            break
    return made


def format_of(flag: str | None, path: Path | None) -> str:
    """The format that was asked for, else that of the name of the file, else HTML.

    UserError for one that there is not.
    """
    ending = "" if path is None else path.suffix.removeprefix(".").lower()
    chosen = flag or (ending if ending in FORMATS else "html")
    if chosen not in FORMATS:
        raise UserError(
            f"there is no format {chosen!r}", where="--format", hint=f"use {', '.join(FORMATS)}"
        )
    return chosen


def possible_formats() -> list[str]:
    """The formats that this installation can make for sure, without trying."""
    found = ["html", "csv"]
    try:
        if browser() is not None:
            found.insert(0, "pdf")
    except UserError:  # a browser is named that is not there
        pass
    return [*found, "xlsx"] if find_spec("xlsxwriter") is not None else found


def render(report: Report, name: str) -> bytes:
    """``report`` as a file of the format ``name``. Raises what the format raises."""
    return FORMATS[name](report)


def write(path: Path, content: bytes) -> None:
    """Whole or not at all; OSError names ``path``."""
    partial = path.with_name(path.name + ".part")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise
    finally:
        partial.unlink(missing_ok=True)
