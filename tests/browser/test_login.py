"""The login with a real provider of identities, a real server and a real browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, Page, expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.web.server.starlette.starlette_app_utils import (
    create_signed_value,
    generate_xsrf_token_string,
)
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from steptax.app.lake import Lake
from steptax.app.serve import free_port, server_command, wait_until_healthy
from steptax.benchmarks.product.sessions import ask
from tests.browser.looking import look
from tests.oidc_provider import CLIENT_ID, FAULTS, Provider
from tests.patience import PATIENCE_S, until
from tests.team_lake import store_team

pytestmark = pytest.mark.browser

COOKIE_SECRET = "planted-cookie-secret-0123456789-abcdefghij"
METRICS_TOKEN = "planted-metrics-token-9876543210"
USERS: dict[str, dict[str, Any]] = {
    "ada": {"email": "ada@example.org", "groups": ["vision", "everyone"]},
    "zoe": {"email": "zoe@example.org", "groups": ["speech"]},
    "nora": {"email": "nora@example.org", "groups": ["everyone"]},
    "mallory": {"email": "boss@example.org", "email_verified": False},
    "boss": {"email": "boss@example.org", "email_verified": True},
}
GRANTS = """
[[access.grant]]
claim = "groups"
value = "vision"
role = "engineer"
teams = ["alpha"]

[[access.grant]]
claim = "groups"
value = "speech"
role = "viewer"
teams = ["zebra"]

[[access.grant]]
claim = "email"
value = "boss@example.org"
role = "admin"
teams = ["*"]
"""


@dataclass
class Served:
    """A running page server with a login."""

    url: str
    provider: Provider
    log: Path
    access: Path

    def get(self, path: str, *, cookie: str | None = None, method: str = "GET") -> tuple[int, str]:
        """Status and body of an answer."""
        request = Request(self.url + path, method=method)
        if cookie is not None:
            request.add_header("Cookie", cookie)
        try:
            with urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode("utf-8", "replace")
        except HTTPError as error:
            return error.code, error.read().decode("utf-8", "replace")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two teams behind a login."""
    folder = tmp_path_factory.mktemp("login")
    lake = Lake(folder / "lake", create=True)
    for word in ("alpha", "zebra"):
        store_team(lake, word)
    with Provider(USERS) as provider:
        port = free_port(8680)
        access = folder / "access.toml"
        access.write_text(
            "[auth]\n"
            f'redirect_uri = "http://127.0.0.1:{port}/oauth2callback"\n'
            f'server_metadata_url = "{provider.issuer}/.well-known/openid-configuration"\n'
            f'client_id = "{CLIENT_ID}"\nclient_secret = "{provider.client_secret}"\n'
            f'cookie_secret = "{COOKIE_SECRET}"\n'
            f'[metrics]\ntoken = "{METRICS_TOKEN}"\n{GRANTS}'
        )
        access.chmod(0o600)
        log = folder / "log"
        environment = dict(os.environ) | {
            "STEPTAX_LAKE": str(lake.root),
            "STEPTAX_ACCESS": str(access),
            "STEPTAX_LOG_FORMAT": "json",
            "STEPTAX_LOG_LEVEL": "info",
        }
        with log.open("wb") as handle:
            process = subprocess.Popen(
                server_command("127.0.0.1", port),
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=handle,
                start_new_session=True,
            )
            try:
                url = f"http://127.0.0.1:{port}"
                wait_until_healthy(url, process)
                yield Served(url, provider, log, access)
            finally:
                process.terminate()
                process.wait(timeout=PATIENCE_S)


@pytest.fixture(autouse=True)
def sound(served: Served) -> None:
    served.provider.fault = "none"


def log_in(tab: Page, served: Served, user: str) -> None:
    tab.goto(served.url)
    tab.get_by_role("button", name="Log in").click()
    tab.get_by_role("link", name=user, exact=True).click()
    tab.wait_for_url(f"{served.url}/**")


def cookies(tab: Page) -> str:
    return "; ".join(f"{c['name']}={c['value']}" for c in tab.context.cookies())


def test_a_stranger_gets_the_shell_and_the_way_to_the_login(
    served: Served, page: Page, screenshot: Callable[[Page, str], None]
) -> None:
    for path in ("/", "/job?job=alpha-run", "/fleet", "/health", "/healthz", "/_stcore/health"):
        status, body = served.get(path)
        assert status == 200
        assert "alpha" not in body
        assert "zebra" not in body
    for path in ("/media/abc.csv", "/metrics", "/_stcore/metrics", "/component/x/y", "/anything"):
        assert served.get(path)[0] == 401, path
    for method in ("PUT", "POST", "DELETE"):
        assert served.get("/_stcore/upload_file/a/b", method=method)[0] == 405
    assert json.loads(served.get("/healthz")[1])["status"] == "ok"
    page.goto(f"{served.url}/job?job=alpha-run")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    expect(page.get_by_text("alpha training")).to_have_count(0)
    expect(page.get_by_text("Fleet")).to_have_count(0)
    assert not look(page, "login", screenshot)


def test_each_reader_sees_the_own_team_and_the_own_files(
    served: Served, browser: Browser, page: Page
) -> None:
    log_in(page, served, "ada")
    expect(page.get_by_text(": engineer of alpha")).to_be_visible()
    expect(page.locator("body")).to_contain_text("alpha-run")
    assert "zebra" not in page.content()
    expect(page.get_by_text("Data & health")).to_have_count(0)
    page.goto(f"{served.url}/job?job=zebra-run")
    expect(page.get_by_text("there is no job 'zebra-run'").first).to_be_visible()
    page.goto(f"{served.url}/fleet")
    button = page.get_by_test_id("stDownloadButton").first.get_by_role("button")
    with page.expect_download() as made:
        button.click()
    file = made.value
    path = "/media/" + file.url.partition("/media/")[2]
    assert "zebra" not in Path(file.path()).read_text()
    own = cookies(page)
    assert served.get(path, cookie=own)[0] == 200
    assert served.get(path)[0] == 401
    other = browser.new_context().new_page()
    log_in(other, served, "zoe")
    expect(other.get_by_text(": viewer of zebra")).to_be_visible()
    assert "alpha" not in other.content()
    assert served.get(path, cookie=cookies(other))[0] == 404
    other.get_by_role("button", name="Log out").click()
    expect(other.get_by_role("button", name="Log in")).to_be_visible()
    # The page says so before the browser has been to where the cookie is taken back.
    until(lambda: served.get(path, cookie=cookies(other))[0] == 401, "the cookie to go")
    other.context.close()


@pytest.mark.parametrize("user", ["nora", "mallory"])
def test_a_known_person_without_a_role_sees_nothing(served: Served, page: Page, user: str) -> None:
    log_in(page, served, user)
    expect(page.get_by_text("no rule gives you a role")).to_be_visible()
    assert "alpha" not in page.content()
    assert served.get("/media/x.csv", cookie=cookies(page))[0] == 403


def test_an_admin_sees_all_teams_and_the_sources(served: Served, page: Page) -> None:
    log_in(page, served, "boss")
    expect(page.get_by_text(": admin of every team")).to_be_visible()
    expect(page.get_by_text("Data & health").first).to_be_visible()
    expect(page.locator("body")).to_contain_text("zebra")


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "none"])
def test_a_token_that_is_not_right_lets_nobody_in(served: Served, page: Page, fault: str) -> None:
    served.provider.fault = fault
    before = served.provider.logins
    log_in(page, served, "boss")
    assert served.provider.logins == before + 1
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert "alpha" not in page.content()
    assert served.get("/media/x.csv", cookie=cookies(page))[0] == 401


@pytest.mark.parametrize("forged", ["old", "future", "no time", "wrong key", "not logged in"])
def test_a_cookie_of_ones_own_making_lets_nobody_in(
    served: Served, browser: Browser, forged: str
) -> None:
    now = time.time()
    claims: dict[str, Any] = {
        "origin": served.url,
        "is_logged_in": forged != "not logged in",
        "sub": "boss",
        "email": "boss@example.org",
        "email_verified": True,
        "iat": {"old": now - 9 * 3600, "future": now + 3600, "no time": None}.get(forged, now),
    }
    secret = "another-secret" if forged == "wrong key" else COOKIE_SECRET
    value = create_signed_value(secret, "_streamlit_user", json.dumps(claims)).decode()
    context = browser.new_context()
    context.add_cookies([{"name": "_streamlit_user", "value": value, "url": served.url}])
    tab = context.new_page()
    tab.goto(served.url)
    expect(tab.get_by_role("button", name="Log in")).to_be_visible(timeout=60_000)
    assert "alpha" not in tab.content()
    assert served.get("/media/x.csv", cookie=f"_streamlit_user={value}")[0] == 401
    context.close()


def cookie_of(served: Served, user: str, *, age_s: float = 0.0) -> str:
    """The cookie of somebody who logged in so long ago."""
    claims = {"origin": served.url, "is_logged_in": True, "iat": time.time() - age_s, "sub": user}
    claims |= {"iss": served.provider.issuer, **USERS[user]}
    value = create_signed_value(COOKIE_SECRET, "_streamlit_user", json.dumps(claims)).decode()
    return f"_streamlit_user={value}"


def test_files_go_by_the_rules_as_they_are(served: Served) -> None:
    """As pages do: of a file that nobody made a person of the rules hears that there is none."""
    before = served.access.read_text()

    def get(user: str, age_s: float = 0.0) -> int:
        return served.get("/media/x.csv", cookie=cookie_of(served, user, age_s=age_s))[0]

    assert (get("nora"), get("ada"), get("ada", 7200)) == (403, 404, 404)
    try:
        given = before.replace('value = "vision"', 'value = "everyone"')
        served.access.write_text(given)
        assert (get("nora"), get("ada")) == (404, 404)
        served.access.write_text(before.replace('value = "vision"', 'value = "nobody"'))
        assert (get("nora"), get("ada")) == (403, 403)
        short = "\n[access]\nsession_hours = 1\n"
        served.access.write_text(before.replace(GRANTS, short + GRANTS))
        assert (get("ada"), get("ada", 7200)) == (404, 401)
        # Seen half written by whatever watches the file, and whole at the same moment.
        served.access.write_text("")
        written_ns = served.access.stat().st_mtime_ns
        time.sleep(1)
        assert (get("ada"), get("boss")) == (403, 403)
        served.access.write_text(before)
        os.utime(served.access, ns=(written_ns, written_ns))
        assert (get("nora"), get("ada")) == (403, 404)
        served.access.write_text("broken")
        assert (get("ada"), get("boss")) == (403, 403)
    finally:
        served.access.write_text(before)
    assert (get("nora"), get("ada")) == (403, 404)
    told = [line for line in served.log.read_text().splitlines() if "until the rules" in line]
    assert len(told) == 2


PAGES = ("", "job", "fleet", "compare", "whatif", "procurement", "reference", "health")


def over_websocket(
    served: Served,
    page: str,
    query: str,
    *,
    user: str | None = None,
    fragment: str | None = None,
    origin: str | None = None,
) -> tuple[bytes, set[str]]:
    """All that the server says to one question, and the parts of the page that it names."""
    xsrf = generate_xsrf_token_string()
    cookie = f"_streamlit_xsrf={xsrf}"
    if user is not None:
        cookie += f"; {cookie_of(served, user)}"
    said: list[bytes] = []
    parts: set[str] = set()

    def read(message: ForwardMsg) -> None:
        said.append(message.SerializeToString())
        parts.add(message.delta.fragment_id)

    async def talk() -> None:
        async with connect(
            served.url.replace("http", "ws", 1) + "/_stcore/stream",
            origin=origin or served.url,  # type: ignore[arg-type]
            subprotocols=["streamlit", xsrf],  # type: ignore[list-item]
            additional_headers={"Cookie": cookie},
            max_size=None,
        ) as socket:
            # Of a part that is not of this tab nothing is said, not even that it is over.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    ask(socket, page, query, fragment, read), PATIENCE_S if fragment is None else 2
                )

    # A thread of its own: the browser's loop runs in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(talk())).result()
    return b"\n".join(said).replace(b"\\", b""), parts - {""}


def test_over_the_websocket_nobody_gets_what_is_not_theirs(served: Served) -> None:
    # The address itself goes back to whoever wrote it.
    query = "zebra-run&a=zebra-run&b=zebra-run&price=2&rank=1&step=3&by=job&denominator=allocated"
    parts: set[str] = set()
    for page in PAGES:
        if page in ("", "job", "fleet"):
            # Who may see all asks first: what is kept of it must not serve who may see less.
            whole, found_parts = over_websocket(served, page, query, user="boss")
            assert b"zebra" in whole.replace(b"zebra-run", b"")
            parts |= found_parts
        for user in ("ada", None):
            found, _ = over_websocket(served, page, query, user=user)
            found = found.replace(b"zebra-run", b"")
            assert b"zebra" not in found, (page, user)
            assert user == "ada" or b"alpha" not in found, page
    assert parts
    for part in sorted(parts)[:2]:  # a part of a page that another has open
        found, _ = over_websocket(served, "job", query, user="ada", fragment=part)
        assert b"zebra" not in found.replace(b"zebra-run", b"")


def test_a_page_of_another_origin_is_refused_and_nobody_is_asked(served: Served) -> None:
    with pytest.raises(InvalidStatus):
        over_websocket(served, "", "alpha-run", user="ada", origin="http://elsewhere.example")
    log = served.log.read_text()
    assert "disallowed Origin" in log
    assert "external IP" not in log


def test_a_stranger_sends_little_and_a_reader_is_heard(served: Served) -> None:
    """A long question: the login's page needs none, and no page needs one of megabytes."""

    def answers(user: str | None, size: int) -> int:
        """Messages of an answer; below zero the code with which it was closed."""
        said = []

        async def talk() -> None:
            headers = {} if user is None else {"Cookie": cookie_of(served, user)}
            async with connect(
                served.url.replace("http", "ws", 1) + "/_stcore/stream",
                origin=served.url,  # type: ignore[arg-type]
                subprotocols=["streamlit"],  # type: ignore[list-item]
                additional_headers=headers,
                max_size=None,
            ) as socket:
                await asyncio.wait_for(ask(socket, "", "x" * size, None, said.append), PATIENCE_S)

        with ThreadPoolExecutor(1) as pool:
            try:
                pool.submit(lambda: asyncio.run(talk())).result()
            except ConnectionClosed as closed:
                return 0 if closed.rcvd is None else -closed.rcvd.code
        return len(said)

    assert answers(None, 10_000) > 0
    assert answers(None, 70_000) == -1009
    assert answers("ada", 70_000) > 0
    assert answers("ada", 3_100_000) == -1009


def test_own_figures_are_for_who_has_the_token(served: Served) -> None:
    request = Request(f"{served.url}/metrics")
    request.add_header("Authorization", f"Bearer {METRICS_TOKEN}")
    with urlopen(request, timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    assert "steptax_sessions " in text
    assert 'steptax_http_requests_total{code="401",method="GET"}' in text
    assert "alpha" not in text


def test_no_secret_is_in_the_log_which_is_one_object_a_line(served: Served, page: Page) -> None:
    served.provider.fault = "other key"  # what goes wrong is logged with its traceback
    log_in(page, served, "ada")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    text = served.log.read_text()
    for secret in (COOKIE_SECRET, METRICS_TOKEN, served.provider.client_secret, "code=", "eyJ"):
        assert secret not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert {"ts", "level", "logger", "message"} <= set.intersection(*map(set, lines))
    assert any(line["message"] == "request" and line["status"] == 401 for line in lines)
    assert any("error" in line for line in lines)
    assert SimpleCookie(cookies(page)).get("_streamlit_user") is None
