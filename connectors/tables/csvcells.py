"""The cells of one line of CSV."""

from __future__ import annotations

import csv
import io


def csv_cells(text: str) -> list[str] | None:
    """The cells of ``text``; None where its quotes do not close, or it is empty."""
    try:
        return next(csv.reader(io.StringIO(text), strict=True), None)
    except csv.Error:
        return None
