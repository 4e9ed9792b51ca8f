"""``steptax job --json`` of many ranks: the worst ones, and how to have all."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steptax.app.commands.view import JSON_RANKS
from steptax.app.entry import main
from steptax.app.lake import Lake
from steptax.app.views.job import load
from steptax.app.views.job.view import job_view
from steptax.app.views.workspace import open_workspace
from steptax.benchmarks.product.scale_data import JOB, fill, slow_rank

Run = Callable[..., Any]
RANKS, STEPS = JSON_RANKS + 14, 60


def test_the_worst_ranks_are_printed_and_all_where_they_are_asked_for(
    steptax: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = tmp_path / "many"
    fill(Lake(root, create=True), RANKS, STEPS)
    short, full = (steptax("job", JOB, "--lake", root, *more) for more in ((), ("--full",)))
    for some, every in (
        (short["blame"], full["blame"]),
        (short["comparison"]["nvrx"], full["comparison"]["nvrx"]),
    ):
        assert len(some["rows"]) == JSON_RANKS
        assert some["rows_left_out"] == len(every["rows"]) - JSON_RANKS > 0
        assert every["rows_left_out"] == 0
        assert some["rows"] == every["rows"][:JSON_RANKS]
        assert some["rows"][0]["rank"] == slow_rank(RANKS)
        # Everything else is the same.
        assert {**some, "rows": (), "rows_left_out": 0} == {**every, "rows": ()}
    assert len(full["comparison"]["nvrx"]["rows"]) == RANKS
    assert {*short} == {*full}
    monkeypatch.setattr(sys, "argv", ["steptax", "job", JOB, "--lake", str(root), "--json"])
    with pytest.raises(SystemExit):
        main()
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    (left,) = (text for text in warnings if "--full" in text)
    assert left.startswith(f"the worst {JSON_RANKS} ranks alone are in blame and comparison.nvrx")


def test_a_window_that_was_cut_says_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(Lake(tmp_path, create=True), 8, STEPS)
    monkeypatch.setattr(load, "MAX_ROWS", 8 * 20)
    ws = open_workspace(tmp_path)
    noted = {
        asked: job_view(ws, JOB, price=None, last_steps=asked).window.note
        for asked in (10, 40, STEPS, None)
    }
    assert noted[10] is None
    assert noted[40] == "the last 20 of 60 steps: the 40 asked for are more than 160 rank rows"
    whole = "the last 20 of 60 steps: all of them are more than 160 rank rows"
    assert (noted[STEPS], noted[None]) == (whole, whole)
