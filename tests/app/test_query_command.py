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
from steptax.app.queries import QUERIES
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


def test_what_is_not_given_is_all_there_is(run: Callable[..., str]) -> None:
    told = json.loads(run("query", "step_rows", "--job", "j", "--json"))
    assert len(told["data"]["rows"]) == 100
    part = json.loads(run("query", "step_rows", "--job", "j", "--set", "first_step=98", "--json"))
    assert [row["step"] for row in part["data"]["rows"]] == [98, 99]


BINS = ("history_quantiles", "--job", "j", "--set", "quantile_ratio=0.5")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("step_rows",), "step_rows is about one job"),
        (("history_steps",), "history_steps is about one job"),
        (("step_rows", "--job", "nosuch"), "nosuch"),
        (BINS, "window_steps: expected a whole number, 1 or more, found nothing"),
        (
            (*BINS, "--set", "step_block=100", "--set", "window_steps=1024"),
            "step_block: expected a multiple of the 1,024 of window_steps, found 100",
        ),
        (
            (*BINS[:4], "quantile_ratio=95", "--set", "step_block=1", "--set", "window_steps=1"),
            "quantile_ratio: expected a share above 0, up to 1, found 95",
        ),
        (
            (
                "history_windows",
                "--job",
                "j",
                "--set",
                "step_block=100",
                "--set",
                "window_steps=100",
            ),
            "window_steps: expected a multiple of the 256 that are stored, found 100",
        ),
        (("step_ops", "--job", "j"), "step: expected a whole number, 0 or more, found nothing"),
    ],
)
def test_what_means_nothing_is_refused(
    lake: Path,
    words: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["steptax", "query", *words, "--json", "--lake", str(lake)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert said in told.out + told.err


def test_queries_that_keep_jobs_apart_need_none(run: Callable[..., str]) -> None:
    told = json.loads(run("query", "fleet_step_spans", "--json"))
    assert [row["job_id"] for row in told["data"]["rows"]] == ["j"]
    apart = {name for name, spec in QUERIES.items() if not spec.is_of_one_job}
    assert all(
        name in apart for name in QUERIES if name.startswith(("fleet_", "bill_", "device_r"))
    )
    assert {"job_list", "printed_loss_jobs", "price_rows"} <= apart
    assert not {"trace_ops", "history_bins", "step_cells", "rank_places"} & apart


def test_rows_are_made_into_objects_in_parts() -> None:
    answer = Answer(pa.table({"a": list(range(25_000))}))
    rows = answer.each()
    assert next(rows) == {"a": 0}
    # A generator that stands still: what it holds is one part, not the rows of all.
    held = inspect.getgeneratorlocals(rows)["part"]
    assert len(held) == named_query._TOGETHER_ROWS
    assert sum(1 for _ in rows) == 24_999
