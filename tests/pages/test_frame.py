"""What stands around the pages, above all when there is nothing to show."""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from steptax.app import first_run
from steptax.app.access import AccessDeniedError
from steptax.app.errors import IntegrityError
from steptax.app.lake import Lake
from steptax.pages import first_run as first_run_page
from steptax.pages import fleet_data, parts
from tests.app.fleet_lake import charge, rows

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
    assert [heading.value for heading in at.header] == ["No job yet"]


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


def test_who_may_only_read_is_told_nothing_of_the_machine(
    lake: Lake, show: Show, text_of: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found_here(**_: object) -> None:
        raise AssertionError("nobody looks at this machine for a stranger")

    monkeypatch.setattr(first_run_page, "found_here", found_here)
    monkeypatch.setenv("STEPTAX_ANYONE_MAY_READ", "1")
    for page in (None, "../pages/job.py", "../pages/fleet.py"):
        at = show(page)
        assert not at.exception
        assert "No job yet" in [one.value for one in at.header]
        assert not [one for one in at.button if one.label in ("Read it now", "Look again")]
        for place in (tmp_path, lake.root, Path.home()):
            assert str(place) not in text_of(at)
    with pytest.raises(AccessDeniedError):
        fleet_data.set_budget(
            scope="all", period="2026-04", budget_usd=None, goodput_slo_ratio=None, set_by="me"
        )
    first_run_page._connect(first_run.Offer("files", "", "", "steptax", "steps", str(tmp_path)))
    assert not lake.job_ids("jobs")


def test_the_first_job_appears_without_a_new_start(lake: Lake, add: Add, show: Show) -> None:
    at = show("../pages/job.py")
    assert not at.metric
    add("worker")
    at.run()
    assert at.metric
    assert at.selectbox(key="job").value == "worker"


@pytest.mark.parametrize(
    ("page", "name", "shown"),
    [
        (None, "Executive review", {"price"}),
        ("../pages/fleet.py", "Fleet", {"price"}),
        ("../pages/job.py", "Job drill-down", {"job", "window", "price"}),
        ("../pages/reference.py", "Reference figures", set()),
        ("../pages/health.py", "Data & health", set()),
    ],
)
def test_a_page_says_its_name_first_and_shows_only_choices_that_count(
    add: Add, show: Show, page: str | None, name: str, shown: set[str]
) -> None:
    add("worker")
    at = show(page)
    assert not at.exception
    first, *rest = [
        m.value.replace("\\", "") for m in at.markdown if m.value.lstrip().startswith("#")
    ]
    assert first == f"# {name}"
    assert rest[0].startswith("## "), "the sentence comes next"
    assert not any(text.startswith(("#### ", "##### ")) for text in rest), "no rank is left out"
    fields = (at.selectbox(key="job"), at.selectbox(key="window"), at.number_input(key="price"))
    assert {field.key for field in fields if not field.disabled} == shown


def test_the_tab_of_a_job_is_named_after_it(
    add: Add, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("worker")
    names: list[str | None] = []
    monkeypatch.setattr(
        st, "set_page_config", lambda page_title=None, **_: names.append(page_title)
    )
    show()
    assert names[-1] == "Executive review · Steptax"
    show("../pages/job.py")
    assert names[-1] == "worker · Job drill-down · Steptax"


def test_only_a_job_that_may_still_begin_is_waited_for(add: Add, show: Show, text_of: Text) -> None:
    head = "job_id,gpus,start,end\n"
    add("ended", kind="jobs", text=f"{head}old,8,2026-09-01T00:00:00Z,2026-09-02T00:00:00Z\n")
    add("begun", kind="jobs", text=f"{head}new,8,2026-09-01T00:00:00Z,\n")
    assert "Looks again" not in text_of(show("../pages/job.py", job="old"))
    assert "Looks again" in text_of(show("../pages/job.py", job="new"))


def test_procurement_without_a_lake_is_the_first_page(
    show: Show, text_of: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPTAX_LAKE", str(tmp_path / "nowhere"))
    at = show("../pages/procurement.py")
    assert not at.exception
    assert not at.error
    assert "steptax ingest FILE" in text_of(at)


def test_the_job_is_always_in_the_url(add: Add, show: Show) -> None:
    add("worker")
    at = show("../pages/job.py")
    assert at.query_params["job"] == "worker"


def test_the_price_of_the_installation_is_in_the_url_and_that_of_a_link_wins(
    add: Add, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPTAX_PRICE_USD_PER_GPU_HOUR", "2")
    add("worker")
    at = show()
    assert at.number_input(key="price").value == 2
    assert at.query_params["price"] == "2.0"
    at.number_input(key="price").set_value(None).run()
    assert at.number_input(key="price").value is None
    assert show(price="3.5").number_input(key="price").value == 3.5


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

    monkeypatch.setattr(fleet_data, "executive", fail)
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
    monkeypatch.setattr(fleet_data, "executive", lambda *_: pytest.fail("drew on import"))
    runpy.run_path(str(ROOT / "pages" / "executive.py"), run_name="imported")
    assert "steptax.pages.frame" in sys.modules


def test_a_bill_alone_is_reviewed_and_not_a_first_run(
    lake: Lake, show: Show, text_of: Text
) -> None:
    day = 86_400_000_000
    begin = 20_000 * day
    lake.append("charges", rows([charge("0", begin, begin + day, "55180", "i-1")]), source="test")
    at = show()
    assert not at.exception
    said = text_of(at)
    assert "You were billed" in said
    assert "55,180" in said
    assert "no job is known to have used any of it" in said
    assert "looks again by itself" not in said
