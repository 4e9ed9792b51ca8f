"""The benchmark of many sessions, with few and for a moment: it is answered, and it sees errors."""

from __future__ import annotations

import asyncio

import pytest

from steptax.benchmarks.product.sessions import Measured, Session, _grew, main


@pytest.mark.slow
def test_sessions_are_held_and_answered(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--sessions", "2", "--seconds", "8"])
    said = capsys.readouterr().out
    assert code == 0, said
    assert "sessions held 2/2 for 8 s, 0 errors" in said
    assert "page" in said
    assert "MiB a minute" in said


def test_memory_that_grows_is_seen_in_a_run_that_tells() -> None:
    flat, grows = [400.0, 430.0, 410.0, 420.0] * 10, [400.0 + 2 * k for k in range(40)]
    assert not _grew(flat, 600)
    assert _grew(grows, 600)
    assert not _grew(grows, 60), "too short to tell"


def test_a_session_that_is_not_answered_is_an_error() -> None:
    measured = Measured()
    asyncio.run(Session("http://127.0.0.1:9", 0, measured).run(1e12))
    assert measured.held == 0
    assert len(measured.errors) == 1
