"""The rows of a named query, for programs: all of them, and never more in memory than needed."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from steptax.app import cli
from steptax.app.lake import Lake
from steptax.app.views import named_query
from steptax.app.views.named_query import Answer


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    rows = {
        "job_id": ["j"] * 100,
        "attempt": pa.array([0] * 100, pa.int32()),
        "step": list(range(100)),
        "rank": pa.array([0] * 100, pa.int32()),
        "start_us": [1_795_900_000_000_000] * 100,
        "duration_us": [1000] * 100,
        "loss": [float("nan") if n == 1 else n / 3 for n in range(100)],
    }
    Lake(tmp_path / "lake", create=True).append("steps", pa.table(rows), source="test")
    return tmp_path / "lake"


@pytest.fixture
def run(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    def command(*words: str) -> str:
        monkeypatch.setattr("sys.argv", ["steptax", *words, "--lake", str(lake)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        return capsys.readouterr().out

    return command


WORDS = ["query", "step_rows", "--job", "j", "--set", "first_step=0", "--set", "last_step=99"]


def test_json_has_all_rows_and_is_one_object(
    run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_query, "_TOGETHER_ROWS", 7)
    said = json.loads(run(*WORDS, "--json"))
    assert (said["ok"], said["warnings"]) == (True, [])
    rows = said["data"]["rows"]
    assert [row["step"] for row in rows] == list(range(100))
    assert [rows[0]["loss"], rows[1]["loss"], rows[2]["loss"]] == [0.0, None, pytest.approx(2 / 3)]


def test_text_has_the_first_rows_and_says_how_many_there_are(run: Callable[..., str]) -> None:
    assert "40 of 100 rows; --json prints all" in run(*WORDS)
    assert json.loads(run(*WORDS[:-1], "last_step=-1", "--json"))["data"]["rows"] == []


def test_rows_are_made_into_objects_in_parts() -> None:
    answer = Answer(pa.table({"a": list(range(25_000))}))
    rows = answer.each()
    assert next(rows) == {"a": 0}
    # A generator that stands still: what it holds is one part, not the rows of all.
    held = inspect.getgeneratorlocals(rows)["part"]
    assert len(held) == named_query._TOGETHER_ROWS
    assert sum(1 for _ in rows) == 24_999
