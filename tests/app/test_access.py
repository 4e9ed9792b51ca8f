"""Rules of who may see what, the file that they stand in, and the server that reads it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.access import (
    ANY_READER,
    ANYONE,
    AccessDeniedError,
    AccessRules,
    Grant,
    LiveRules,
    NotLoggedInError,
    Role,
    read_rules,
)
from steptax.app.commands import serve
from steptax.app.commands.serve import serve_command
from steptax.app.errors import UserError
from steptax.app.lake import Lake
from steptax.app.logs import HIDDEN, JsonLines, Redacting, secrets_in
from steptax.app.serve import free_port
from tests.team_lake import store_team

PLANTED = "planted-secret-1f6b0a2c9d8e7f6a5b4c3d2e1f0a9b8c"
NOW_S = 1_790_000_000.0
GRANT = '[[access.grant]]\nclaim = "groups"\nvalue = "vision"\nrole = "viewer"\nteams = ["alpha"]\n'


def whole(extra: str = GRANT, **auth: str) -> str:
    values = {
        "redirect_uri": "https://steptax.example/oauth2callback",
        "server_metadata_url": "https://login.example/.well-known/openid-configuration",
        "client_id": "steptax",
        "client_secret": PLANTED,
        "cookie_secret": PLANTED,
    } | auth
    return "[auth]\n" + "".join(f'{k} = "{v}"\n' for k, v in values.items() if v) + extra


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, mode: int = 0o600) -> Path:
        path = tmp_path / "access.toml"
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


def claims(**more: Any) -> dict[str, Any]:
    return {"is_logged_in": True, "sub": "u1", "iat": NOW_S - 60} | more


def grant(claim: str, value: str, role: Role, *teams: str) -> Grant:
    return Grant(claim, value, role, None if "*" in teams else frozenset(teams))


RULES = AccessRules(
    (
        grant("groups", "vision", Role.ENGINEER, "alpha"),
        grant("groups", "guests", Role.VIEWER, "beta"),
        grant("email", "boss@example.org", Role.ADMIN, "*"),
        grant("groups", "finance", Role.VIEWER, "*"),
    ),
    8.0,
)


def test_claims_become_a_role_and_teams() -> None:
    one = RULES.access_of(claims(groups=["vision", "other"]), now_s=NOW_S)
    assert (one.role, one.teams) == (Role.ENGINEER, {"alpha"})
    finance = RULES.access_of(claims(groups="finance"), now_s=NOW_S)
    assert (finance.role, finance.teams) == (Role.VIEWER, None)
    assert not finance.may_manage()
    boss = claims(email="boss@example.org", email_verified=True)
    assert RULES.access_of(boss, now_s=NOW_S).may_manage()


def test_rules_together_add_teams_and_no_power() -> None:
    both = RULES.access_of(claims(groups=["vision", "guests"]), now_s=NOW_S)
    assert (both.role, both.teams) == (Role.VIEWER, {"alpha", "beta"})
    # An engineer of one team who also may read all is no engineer of all.
    reader = RULES.access_of(claims(groups=["vision", "finance"]), now_s=NOW_S)
    assert (reader.role, reader.teams) == (Role.VIEWER, None)


@pytest.mark.parametrize(
    "held",
    [
        {},
        {"groups": []},
        {"groups": ["visio"]},
        {"groups": "xvision"},
        {"groups": {"vision": True}},
        {"groups": None},
        {"email": "boss@example.org"},
        {"email": "boss@example.org", "email_verified": "true"},
        {"email": ["boss@example.org"], "email_verified": False},
    ],
)
def test_who_fits_no_rule_sees_nothing(held: dict[str, Any]) -> None:
    with pytest.raises(AccessDeniedError) as error:
        RULES.access_of(claims(**held), now_s=NOW_S)
    assert not isinstance(error.value, NotLoggedInError)


@pytest.mark.parametrize(
    "held",
    [
        {"is_logged_in": False},
        {"is_logged_in": "true"},
        {"sub": ""},
        {"iat": None},
        {"iat": True},
        {"iat": "1790000000"},
        {"iat": float("nan")},
        {"iat": NOW_S - 8 * 3600},
        {"iat": NOW_S + 61},
    ],
)
def test_a_login_that_is_none_or_too_old_is_none(held: dict[str, Any]) -> None:
    with pytest.raises(NotLoggedInError):
        RULES.access_of(claims(groups=["vision"], **{"iat": NOW_S} | held), now_s=NOW_S)


@given(
    st.dictionaries(
        st.sampled_from(["groups", "email", "sub", "iat", "is_logged_in", "email_verified"]),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()),
    )
)
def test_whatever_the_claims_are_nobody_gets_in_by_mistake(held: dict[str, Any]) -> None:
    with pytest.raises(AccessDeniedError):
        RULES.access_of(held, now_s=NOW_S)


def test_a_file_that_is_right_is_read(file: Callable[..., Path]) -> None:
    rules = read_rules(file(whole("[access]\nsession_hours = 2\n" + GRANT)))
    assert rules == AccessRules((grant("groups", "vision", Role.VIEWER, "alpha"),), 2.0)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_may_read_is_refused(file: Callable[..., Path], mode: int) -> None:
    with pytest.raises(UserError, match="others can read it") as error:
        read_rules(file(whole(), mode))
    assert "chmod 600" in str(error.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x = 1", "no \\[auth\\]"),
        (whole(client_secret=""), "lacks client_secret"),
        (whole(cookie_secret="short"), "fewer than 32"),
        (whole(redirect_uri="https://steptax.example/"), "oauth2callback"),
        (whole(""), "no \\[\\[access.grant\\]\\]"),
        (whole("[access]\nsession_hours = 0\n" + GRANT), "session_hours"),
        (whole(GRANT.replace('"viewer"', '"root"')), "role of viewer, engineer, admin"),
        (whole(GRANT.replace('"viewer"', '"admin"')), "an admin is one of every team"),
        (whole(GRANT.replace('["alpha"]', '"alpha"')), "teams is a list"),
        (whole(GRANT + "more = 1\n"), "grant 1"),
        (whole() + f"\nbroken = {PLANTED}", "is no TOML"),
    ],
)
def test_what_is_wrong_is_said_and_no_value_of_the_file(
    file: Callable[..., Path], text: str, what: str
) -> None:
    path = file(text)
    with pytest.raises(UserError, match=what) as error:
        read_rules(path)
    assert error.value.where == str(path)
    assert PLANTED not in str(error.value)


def test_rules_are_as_the_file_is_now(
    file: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    path = file(whole())
    live = LiveRules(path)
    assert live.now() is live.now()
    assert live.now().session_hours == 8
    path.write_text(whole("[access]\nsession_hours = 2\n" + GRANT))
    assert live.now().session_hours == 2
    path.chmod(0o644)
    for _ in range(3):
        with pytest.raises(AccessDeniedError, match="nobody sees anything") as error:
            live.now()
        assert str(path) not in str(error.value)  # whoever asks may be anybody
    assert caplog.text.count("others can read it") == 1
    path.unlink()
    with pytest.raises(AccessDeniedError):
        live.now()
    file(whole())
    assert live.now().session_hours == 8


def test_it_listens_beyond_this_machine_when_told_twice_or_with_a_login(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7"):
        with pytest.raises(UserError, match="there is no login") as error:
            serve_command(lake=tmp_path, host=host)
        assert "--access" in str(error.value)
    with pytest.raises(UserError, match="cannot be read"):
        serve_command(lake=tmp_path, host="0.0.0.0", access=tmp_path / "none")


def test_a_server_whose_rules_cannot_be_read_does_not_start(file: Callable[..., Path]) -> None:
    path = file(whole(), 0o644)
    done = subprocess.run(
        [sys.executable, "-c", "import steptax.app.asgi"],
        env=dict(os.environ) | {"STEPTAX_ACCESS": str(path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "others can read it" in done.stderr
    assert PLANTED not in done.stderr + done.stdout


def test_secrets_are_blotted_out_of_lines_and_tracebacks() -> None:
    found = secrets_in({"auth": {"client_secret": PLANTED, "client_id": "steptax"}})
    assert found == [PLANTED]
    try:
        raise ValueError(f"bad {PLANTED}")
    except ValueError:
        record = logging.LogRecord(
            "steptax", logging.ERROR, "x", 1, f"got {PLANTED}", None, sys.exc_info()
        )
    for form in (JsonLines, Redacting):
        line = form(found).format(record)
        assert PLANTED not in line
        assert line.count(HIDDEN) >= 2


def test_a_line_of_a_request_names_it_and_stays_one_line() -> None:
    told = {"method": "GET", "path": "/a\n2026 INFO \u202eforged", "status": 404}
    record = logging.makeLogRecord({"msg": "request", "name": "steptax.serve", **told})
    line = Redacting().format(record)
    assert line.endswith(
        'steptax.serve: request method=GET path="/a\\n2026 INFO \\u202eforged" status=404'
    )
    assert len(line.splitlines()) == 1
    assert told.items() <= json.loads(JsonLines().format(record)).items()


@pytest.mark.parametrize("form", ["html", "csv"])
def test_a_report_of_a_team_holds_nothing_of_another(
    steptax: Callable[..., Any], tmp_path: Path, form: str
) -> None:
    lake = Lake(tmp_path / "teams", create=True)
    for word in ("alpha", "zebra"):
        store_team(lake, word)
    out = tmp_path / f"brief.{form}"
    given_ = ["report", "executive", "-o", str(out), "--lake", str(lake.root), "--price", "2"]
    steptax(*given_)
    assert "zebra" in out.read_text()
    steptax(*given_, "--team", "alpha")
    assert "alpha-run" in out.read_text()
    assert "zebra" not in out.read_text()
    job = ["report", "job", "zebra-run", "-o", str(out), "--lake", str(lake.root)]
    error = steptax(*job, "--team", "alpha", fails=2)
    assert "there is no job" in error["message"]


def test_without_a_login_this_machine_may_all_and_others_may_read() -> None:
    assert ANYONE.may_manage()
    ANYONE.check_budget("all")
    assert ANY_READER.is_whole
    assert not ANY_READER.may_manage()
    for scope in ("all", "team:alpha", "job:one"):
        with pytest.raises(AccessDeniedError):
            ANY_READER.check_budget(scope)


@pytest.mark.parametrize(
    ("flags", "others"),
    [
        ({}, False),
        ({"host": "localhost"}, False),
        ({"host": "0.0.0.0", "insecure": True}, True),
        ({"insecure": True}, True),  # a proxy of this machine brings the others
        ({"allow_host": ["steptax.example"]}, True),
    ],
)
def test_who_else_reaches_the_pages_may_only_read(
    flags: dict[str, Any], others: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, str]] = []

    def dashboard_at(_host: str, _port: int, environment: dict[str, str]) -> None:
        told.append(environment)
        raise KeyboardInterrupt

    monkeypatch.setattr(serve, "dashboard_at", dashboard_at)
    monkeypatch.setattr(serve, "stop_on_terminate", lambda: None)
    monkeypatch.delenv("STEPTAX_ACCESS", raising=False)
    monkeypatch.delenv("STEPTAX_ANYONE_MAY_READ", raising=False)
    serve_command(lake=tmp_path / "lake", port=free_port(8600), **flags)
    assert [("STEPTAX_ANYONE_MAY_READ" in one) for one in told] == [others]
