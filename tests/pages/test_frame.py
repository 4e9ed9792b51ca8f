"""What stands around the pages, above all when there is nothing to show."""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from steptax.app import first_run
from steptax.app.errors import IntegrityError
from steptax.app.lake import Lake
from steptax.pages import data, parts
from steptax.pages import first_run as first_run_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["../pages/executive.py", "../pages/job.py", "../pages/health.py"]

Add = Callable[..., None]
Show = Callable[..., AppTest]
Text = Callable[[AppTest], str]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("lake")
def test_an_empty_lake_says_what_to_do(show: Show, text_of: Text, page: str) -> None:
    at = show(page)
    assert not at.exception
    assert not at.error
    assert not at.metric
    said = text_of(at)
    assert "steptax demo" in said
    assert "steptax ingest FILE" in said
    assert [heading.value for heading in at.subheader] == ["No job yet"]


def test_no_lake_at_all_says_the_same(
    show: Show, text_of: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPTAX_LAKE", str(tmp_path / "nowhere"))
    at = show()
    assert not at.exception
    assert "steptax demo" in text_of(at)
    assert not (tmp_path / "nowhere").exists()


def test_what_is_on_the_machine_is_offered_and_read_by_a_button(
    lake: Lake, show: Show, text_of: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "files" / "run-1"
    folder.mkdir(parents=True)
    trace = ROOT / "tests" / "connectors" / "examples" / "kineto.json"
    (folder / "rank0.pt.trace.json").write_bytes(trace.read_bytes())
    monkeypatch.setattr(first_run, "usual_folders", lambda: [tmp_path / "files"])
    monkeypatch.setattr(first_run, "PORTS", ())
    monkeypatch.setattr(first_run, "_devices", list)
    monkeypatch.setattr(first_run, "_slurm", list)
    first_run_page._found.clear()
    at = show("../pages/job.py")
    assert "1 traces of torch.profiler" in text_of(at)
    assert f"steptax ingest kineto {folder}" in [code.value for code in at.code]
    at.button(key="connect_0").click().run()
    assert not at.exception
    assert at.selectbox(key="job").value == "run-1"
    first_run_page._found.clear()


def test_the_first_job_appears_without_a_new_start(lake: Lake, add: Add, show: Show) -> None:
    at = show("../pages/job.py")
    assert not at.metric
    add("worker")
    at.run()
    assert at.metric
    assert at.selectbox(key="job").value == "worker"


def test_the_job_is_always_in_the_url(add: Add, show: Show) -> None:
    add("worker")
    at = show("../pages/job.py")
    assert at.query_params["job"] == "worker"


@pytest.mark.parametrize(
    ("key", "value"), [("price", "free"), ("price", "-1"), ("window", "7"), ("rank", "x")]
)
def test_nonsense_in_a_link_is_ignored(add: Add, show: Show, key: str, value: str) -> None:
    add("worker")
    at = show("../pages/job.py", **{key: value})
    assert not at.exception
    assert at.number_input(key="price").value is None
    assert at.selectbox(key="window").value == "500"


def test_an_error_is_a_message_with_a_way_out(
    add: Add, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise IntegrityError("a $1 bucket is _odd_", where="ledger", hint="report it")

    monkeypatch.setattr(data, "executive", fail)
    add("worker")
    at = show()
    assert not at.exception
    assert at.error[0].value.replace("\\", "") == (
        "**a $1 bucket is _odd_**  \nledger  \nWhat to do: report it"
    )
    assert "Traceback" not in at.error[0].value


@pytest.mark.parametrize(
    "text", ["$5 to $7", "a_b*c", "[x](http://y)", "<b>", ":red[x] :material/x:", "# no", "`x`"]
)
def test_plain_text_loses_nothing_and_means_nothing(text: str) -> None:
    made = parts.plain(text)
    # A mark of no width keeps an address from being made a link.
    assert made.replace("\\", "").replace("\N{WORD JOINER}", "") == text
    assert "http:/" not in made
    for mark in "$_*[`<:#":
        assert made.count(mark) == made.count(f"\\{mark}")


def _imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return names | {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }


@pytest.mark.parametrize("path", sorted((ROOT / "pages").glob("*.py")), ids=lambda p: p.name)
def test_pages_reach_data_through_views_only(path: Path) -> None:
    banned = ("pandas", "numpy", "duckdb", "pyarrow", "requests")
    layers = tuple(f"steptax.app.{name}" for name in ("compute", "queries", "lake"))
    for name in _imports(path):
        assert not name.startswith((*banned, *layers, "steptax.connectors")), name


@pytest.mark.parametrize(
    "name", ["executive", "job", "drill", "health", "said", "collectives", "unstepped"]
)
def test_pages_are_thin(name: str) -> None:
    text = (ROOT / "pages" / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 150
    assert "SELECT" not in text


def test_the_entry_script_stands_beside_no_pages_folder() -> None:
    assert (ROOT / "app" / "main.py").is_file()
    assert not (ROOT / "app" / "pages").exists()


def test_importing_a_page_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "executive", lambda *_: pytest.fail("drew on import"))
    runpy.run_path(str(ROOT / "pages" / "executive.py"), run_name="imported")
    assert "steptax.pages.frame" in sys.modules
