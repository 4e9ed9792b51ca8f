"""An address that is followed and never answers is unknown since then, and not nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from steptax.app.views.health import health_view
from steptax.app.views.review.executive import executive_view
from steptax.app.views.workspace import open_workspace

NOWHERE = "http://127.0.0.1:9"


@pytest.mark.parametrize("kind", ["slurm", "prometheus", "dcgm"])
def test_a_source_that_never_answered_leaves_a_trace(
    tmp_path: Path, kind: str, steptax: Callable[..., Any]
) -> None:
    steptax("watch", kind, NOWHERE, "--once", fails=2)
    lake = tmp_path / "lake"
    ws = open_workspace(lake)
    (silent,) = executive_view(ws, price=Decimal(2)).silent
    assert silent.name.startswith(f"{kind}:{NOWHERE}")
    assert "it does not answer" in silent.text
    assert silent.text.startswith("unknown since 20")
    (row,) = health_view(ws).sources
    assert row.source == silent.name
    assert row.state.startswith("does not answer: ")
    assert row.accepted == 0
    # What another hand left there is no note, and no end of the page.
    (note,) = (lake / "watch").glob("*.json")
    note.write_text(json.dumps([1]))
    assert not executive_view(ws, price=Decimal(2)).silent
