"""Pages as a reader of one team sees them: no page, address or file tells anything of another."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.access import Access, AccessDeniedError, NotLoggedInError, Role
from steptax.app.errors import NotFoundError, UserError
from steptax.app.lake import Lake
from steptax.app.lake.segments import job_folder
from steptax.app.views.job.models import JobView
from steptax.app.views.kept import Latest
from steptax.pages import data, fleet_data, reader
from steptax.pages.state import Selection
from tests.app.fleet_lake import rows
from tests.pages.sent import PAGES, files, sent  # noqa: F401
from tests.team_lake import store_team

OURS, THEIRS = "alpha", "zebra"
Show = Callable[..., AppTest]
Read = Callable[[Access | Exception], None]


@pytest.fixture
def teams(lake: Lake, fill: Callable[..., None]) -> Lake:
    """A job of each of two teams, at the same time on nodes of their own."""
    fill(lake, "teams", lambda made: [store_team(made, word) for word in (OURS, THEIRS)])
    return lake


@pytest.fixture
def read_as(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Say who reads from now on, or why nobody may."""

    def set_(who: Access | Exception) -> None:
        def current() -> Access:
            if isinstance(who, Exception):
                raise who
            return who

        monkeypatch.setattr(reader, "current", current)

    return set_


def viewer(*teams: str, role: Role = Role.VIEWER) -> Access:
    return Access("reader@example.org", role, frozenset(teams))


def said(at: AppTest, made_by: dict[str, Callable[[], Any]]) -> bytes:
    """Everything that a page sent, and every file of it, as one."""
    made = []
    for name, make in made_by.items():
        found = make()
        raw = found if isinstance(found, bytes) else str(found).encode()
        made.append(name.encode() + (_text_of_pdf(raw) if name.endswith(".pdf") else raw))
    return b"\n".join([*sent(at).values(), *made])


def _text_of_pdf(raw: bytes) -> bytes:
    import io

    import pypdf

    return "".join(p.extract_text() for p in pypdf.PdfReader(io.BytesIO(raw)).pages).encode()


@pytest.mark.parametrize("page", PAGES)
def test_no_page_and_no_file_tells_of_another_team(
    teams: Lake,
    show: Show,
    read_as: Read,
    files: dict[str, Callable[[], Any]],  # noqa: F811
    page: str,
) -> None:
    # The whole page first: what it keeps in memory must not serve who may see less.
    read_as(Access("boss@example.org", Role.ADMIN, None))
    whole = show(None if page == "executive" else f"../pages/{page}.py", price="2")
    everything = said(whole, files)
    assert not whole.exception
    files.clear()
    read_as(viewer(OURS))
    address = None if page in ("executive", "health") else f"../pages/{page}.py"
    if page == "health":
        with pytest.raises(AccessDeniedError):
            data.health()
        with pytest.raises(AccessDeniedError):
            data.alerts()
        return
    at = show(address, price="2")
    assert not at.exception
    mine = said(at, files)
    assert THEIRS.encode() not in mine
    assert str(teams.root).encode() not in mine  # where the lake is is nothing of a reader's
    if page in ("executive", "fleet", "job"):
        assert THEIRS.encode() in everything
        assert f"{OURS}-run".encode() in mine


@pytest.mark.parametrize("page", ["job", "compare", "whatif", "procurement", "fleet", "executive"])
def test_an_address_that_names_a_job_of_others_shows_nothing_of_it(
    teams: Lake, show: Show, read_as: Read, page: str
) -> None:
    read_as(viewer(OURS))
    asked = {"job": f"{THEIRS}-run", "rank": "1", "step": "3", "price": "2", "by": "job"}
    asked |= {"a": f"{THEIRS}-run", "b": f"{THEIRS}-run"}
    at = show(None if page == "executive" else f"../pages/{page}.py", **asked)
    assert not at.exception
    # The address itself stands in the choice of the job, as whoever wrote it knows it.
    found = b"\n".join(sent(at).values()).replace(b"\\", b"")
    found = found.replace(f"{THEIRS}-run".encode(), b"")
    assert THEIRS.encode() not in found
    assert str(teams.root).encode() not in found
    if page == "job":
        assert any("there is no job" in e.value for e in at.error)
        assert any("the lake" in e.value for e in at.error)


def test_data_of_each_kind_is_of_the_own_team(teams: Lake, read_as: Read) -> None:
    read_as(viewer(OURS))
    theirs = f"{THEIRS}-run"
    assert data.workspace().job_ids() == [f"{OURS}-run"]
    assert not data.has_collectives(theirs)
    assert not data.devices_are_there(theirs)
    scopes = fleet_data.budget_scopes()
    assert f"team:{OURS}" in scopes
    assert THEIRS not in repr(scopes)
    with pytest.raises(UserError):
        data.record(theirs, None)
    with pytest.raises(UserError):
        fleet_data.budget(f"team:{THEIRS}", None, None)


def test_a_shared_view_of_a_running_job_serves_nobody_else(
    teams: Lake, read_as: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Latest[JobView](16, lambda view: view.coverage.is_live, 60.0, rest=1e9)
    monkeypatch.setattr(data, "_job_views", kept)
    theirs = f"{THEIRS}-run"
    now_us = time.time_ns() // 1000
    for word in (OURS, THEIRS):
        record = {"job_id": f"{word}-run", "team": word, "state": "running", "world_size": 4}
        record |= {"start_us": now_us - 60_000_000}
        teams.append("jobs", rows([record]), source="test")
        folder = teams.root / "live" / job_folder(f"{word}-run")
        folder.mkdir(parents=True)
        beats = [{"rank": rank, "ts_us": now_us, "state": "running"} for rank in range(4)]
        (folder / "beats-collector.json").write_text(json.dumps(beats))
    chosen = Selection(theirs, 500, None, live=True)
    read_as(Access("boss", Role.ADMIN, None))
    whole = data.job(chosen, theirs)
    assert whole.coverage.is_live
    read_as(viewer(OURS))
    with pytest.raises(NotFoundError):
        data.job(chosen, theirs)
    read_as(viewer(THEIRS))
    own = data.job(chosen, theirs)
    assert own is not whole
    read_as(viewer(OURS, THEIRS))
    assert data.job(chosen, theirs) is not own
    # One of the same teams is one of the same view.
    read_as(Access("another@example.org", Role.VIEWER, frozenset({THEIRS})))
    assert data.job(chosen, theirs) is own


def test_who_may_set_which_budget(teams: Lake, read_as: Read) -> None:
    entry = {
        "period": "2026-04",
        "budget_usd": Decimal(5),
        "goodput_slo_ratio": None,
        "set_by": "me",
    }

    def may_set(scope: str) -> bool:
        try:
            fleet_data.set_budget(scope=scope, **entry)
        except AccessDeniedError:
            return False
        return True

    read_as(viewer(OURS))
    assert not may_set(f"team:{OURS}")
    read_as(viewer(OURS, role=Role.ENGINEER))
    assert may_set(f"team:{OURS}")
    assert not may_set(f"team:{THEIRS}")
    assert not may_set("all")
    assert not may_set(f"job:{THEIRS}-run")
    read_as(Access("boss", Role.ADMIN, None))
    assert may_set("all")


@pytest.mark.parametrize(
    "problem",
    [NotLoggedInError("nobody is logged in"), AccessDeniedError("no rule gives you a role")],
)
@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_drawn_for_who_is_not_let_in(
    teams: Lake, show: Show, read_as: Read, page: str, problem: Exception
) -> None:
    read_as(problem)
    at = show(job=f"{OURS}-run")
    found = b"\n".join(sent(at).values())
    for word in (OURS, THEIRS, "Procurement", "Fleet"):
        assert word.encode() not in found.replace(f"{OURS}-run".encode(), b"")
    assert not at.exception
    assert not at.selectbox
    labels = [button.label for button in at.button]
    assert labels == (["Log in"] if isinstance(problem, NotLoggedInError) else ["Log out"])


def test_a_page_outside_of_a_run_lets_nobody_in(
    teams: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    path = tmp_path / "access.toml"
    path.write_text(
        '[auth]\nredirect_uri = "http://127.0.0.1:1/oauth2callback"\n'
        'server_metadata_url = "http://127.0.0.1:1"\nclient_id = "x"\nclient_secret = "y"\n'
        f'cookie_secret = "{"c" * 32}"\n'
        '[[access.grant]]\nclaim = "sub"\nvalue = "me"\nrole = "admin"\nteams = ["*"]\n'
    )
    path.chmod(0o600)
    monkeypatch.setenv("STEPTAX_ACCESS", str(path))
    assert time.time() > 0
    with pytest.raises(NotLoggedInError):
        data.workspace()
