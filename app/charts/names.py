"""Names in figures: Plotly draws tags in a text, and so would make a link of a name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

#: Plotly draws b, br, i, sup, sub, span and a; the last leads away from the page.
_LINK = re.compile(r"<(?=\s*/?\s*a\b)", re.IGNORECASE)


def without_links(figure: go.Figure) -> go.Figure:
    """``figure`` with every link in a text written out as text; itself where there is none."""
    spec = figure.to_plotly_json()
    if not _holds_link(spec):
        return figure
    return go.Figure(_written_out(spec))


def _holds_link(value: Any) -> bool:
    if isinstance(value, str):
        return "<" in value and _LINK.search(value) is not None
    if isinstance(value, Mapping):
        return any(map(_holds_link, value.values()))
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "OUT" and any(map(_holds_link, value.ravel().tolist()))
    if isinstance(value, list | tuple):
        return any(map(_holds_link, value))
    return False


def _written_out(value: Any) -> Any:
    if isinstance(value, str):
        return _LINK.sub("&lt;", value)
    if isinstance(value, Mapping):
        return {key: _written_out(held) for key, held in value.items()}
    if isinstance(value, np.ndarray):
        return _written_out(value.tolist()) if value.dtype.kind in "OUT" else value
    if isinstance(value, list | tuple):
        return [_written_out(held) for held in value]
    return value
