"""What others say of a job, on its page: its log and the reports of other tools, beside ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.connectors.base import Options

JOB = "../pages/job.py"
EXAMPLES = Path(__file__).parents[1] / "connectors" / "examples"
Show = Callable[..., AppTest]
Figures = Callable[[AppTest], list[dict[str, Any]]]
Text = Callable[[AppTest], str]
Add = Callable[..., None]


def keys(figures: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {figure["id"].rsplit("-", 1)[-1]: figure for figure in figures}


def frames(at: AppTest) -> list[Any]:
    return [element.value for element in at.dataframe]


@pytest.fixture
def titan(lake: Lake, shared: Callable[[str], Path]) -> None:
    path = shared("connectors/torchtitan/torchtitan_8xb200_tp2fsdp4_logfreq1.log")
    ingest_file(lake, "torchtitan", path, Options(job_id="titan"))


@pytest.mark.usefixtures("titan")
def test_what_the_log_printed_stands_beside_ours(
    show: Show, text_of: Text, figures: Figures, array: Callable[[Any], Any]
) -> None:
    at = show(JOB, job="titan")
    assert not at.exception
    assert not at.error
    assert "### What the log printed" in text_of(at)
    (table,) = [frame for frame in frames(at) if "printed" in frame.columns]
    rows = table.set_index("figure")
    assert rows.loc["tokens per second and GPU", "printed"] == "9,323"
    assert rows.loc["tokens per second and GPU", "ours"] == pytest.approx(2744.7, abs=0.1)
    assert rows.loc["MFU", "printed"] == "34.91%"
    assert rows.loc["MFU", "ours_is"].startswith("unknown")
    # Its loss is drawn with its steps, so only the rate is drawn here.
    (trace,) = keys(figures(at))["printed"]["spec"]["data"]
    assert trace["name"] == "tps"
    assert array(trace["y"]).tolist()[:2] == [341.0, 8750.0]
    assert keys(figures(at))["loss"]
    # The numbers of the page are ours: no printed one is among them.
    assert {m.value for m in at.metric if m.label == "MFU"} == {"unknown"}


def test_a_printed_loss_is_drawn_where_the_steps_have_none(
    lake: Lake, show: Show, figures: Figures, tmp_path: Path
) -> None:
    steps = ["step,rank,duration_ms", *(f"{s},{r},100" for s in range(20) for r in range(2))]
    loss = [f"{1_764_000_000_000 + 1000 * s} {9 - s / 10} {s}" for s in range(1, 20)]
    for name, kind, text in (("s.csv", "steps", steps), ("loss", "mlflow", loss)):
        (tmp_path / name).write_text("\n".join(text) + "\n")
        ingest_file(lake, kind, tmp_path / name, Options(job_id="both"))
    at = show(JOB, job="both")
    assert not at.exception
    (trace,) = keys(figures(at))["printed"]["spec"]["data"]
    assert trace["name"] == "loss"
    assert "loss" not in keys(figures(at))


def test_a_job_without_a_log_has_no_such_section(add: Add, show: Show, text_of: Text) -> None:
    add("worker")
    at = show(JOB, job="worker")
    assert "What the log printed" not in text_of(at)
    assert "Straggler reports of other tools" not in text_of(at)


def test_reports_of_other_tools_stand_with_the_other_detectors(
    lake: Lake, add: Add, show: Show, text_of: Text
) -> None:
    add("worker")
    assert "0.610" not in text_of(show(JOB, job="worker"))
    ingest_file(lake, "nvrx", EXAMPLES / "nvrx.log", Options(job_id="worker"))
    at = show(JOB, job="worker")
    assert not at.exception
    (shown,) = [e for e in at.expander if e.label == "How other detectors see it"]
    said = "\n".join(caption.value for caption in shown.caption).replace("\\", "")
    assert "**Straggler reports of other tools**" in said
    assert "Slow by these reports: rank 7." in said
    assert "rank 7 lowest, GPU relative performance 0.610" in said
    # Ours is what it was.
    assert "Rank 5 makes the other 7 wait" in text_of(at)


def test_a_job_of_reports_alone_shows_them(lake: Lake, show: Show, text_of: Text) -> None:
    ingest_file(lake, "nvrx", EXAMPLES / "nvrx.log", Options(job_id="nv"))
    at = show(JOB, job="nv")
    assert not at.exception
    assert not at.error
    said = text_of(at)
    assert "has no steps" in said
    assert "steptax ingest steps FILE --job nv" in said
    assert "Slow by these reports: rank 7." in said
