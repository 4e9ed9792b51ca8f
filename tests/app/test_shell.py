"""The shell of the pages: something to see before the first word, and a way on from nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from steptax.app.guard import SHELL
from steptax.app.shell import HOME, PAGES, Shell, opening

Get = Callable[[str], httpx.Response]


@pytest.fixture
def get() -> Get:
    """Asks the shell before a server that says ``behind`` at every address."""
    behind = Starlette(routes=[Route("/{path:path}", lambda _: PlainTextResponse("behind"))])
    transport = httpx.ASGITransport(Shell(behind, own=("/healthz",)))

    async def ask(path: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://steptax") as client:
            return await client.get(path)

    return lambda path: asyncio.run(ask(path))


@pytest.mark.parametrize("path", ["", *(name for name in PAGES if name != HOME)])
def test_a_page_says_its_name_before_its_scripts_are_there(get: Get, path: str) -> None:
    answer = get(f"/{path}?job=a")
    assert answer.status_code == 200
    title = PAGES[path or HOME].replace("&", "&amp;")
    assert f"<title>{title} · Steptax</title>" in answer.text
    assert f"<b>{title}</b>Opening the page" in answer.text
    # Streamlit takes its place: its scripts, and the element that it draws into.
    assert '<div id="root"></div>' in answer.text
    assert "./static/js/index." in answer.text
    assert answer.headers["cache-control"] == "no-cache"


def test_what_is_said_while_opening_goes_when_something_is_drawn() -> None:
    hidden = '[data-testid="stElementContainer"]) #opening { display: none; }'
    assert hidden in opening("Fleet")


def test_the_first_page_answers_by_its_name_too(get: Get) -> None:
    answer = get(f"/{HOME}?price=3&job=a")
    assert answer.status_code == 307
    assert answer.headers["location"] == "./?price=3&job=a"


@pytest.mark.parametrize(("path", "up"), [("/nope", "./"), ("/a/b/c", "../../"), ("/job.py", "./")])
def test_an_address_that_is_none_names_the_pages(get: Get, path: str, up: str) -> None:
    answer = get(path)
    assert answer.status_code == 404
    assert "There is no page at this address" in answer.text
    assert f'href="{up}job"' in answer.text


def test_an_address_is_text_and_no_markup(get: Get) -> None:
    assert "<script>" not in get("/<script>alert(1)</script>").text


@pytest.mark.parametrize(
    "path",
    [
        "/healthz",
        "/favicon.png",
        "/static/js/x.js",
        "/media/x.csv",
        "/_stcore/health",
        "/job/_stcore/health",
        "/auth/login",
        "/oauth2callback",
        "/job/",
    ],
)
def test_everything_else_is_handed_on(get: Get, path: str) -> None:
    assert get(path).text == "behind"


def test_a_stranger_may_open_the_shell_of_every_page() -> None:
    assert {f"/{name}" for name in PAGES} <= SHELL
