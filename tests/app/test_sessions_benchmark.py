"""The benchmark of many sessions, with few and for a moment: it is answered, and it sees errors."""

from __future__ import annotations

import asyncio

import pytest

from steptax.benchmarks.product.sessions import Measured, Session, main


@pytest.mark.slow
def test_sessions_are_held_and_answered(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--sessions", "2", "--seconds", "8"])
    said = capsys.readouterr().out
    assert code == 0, said
    assert "sessions held 2/2 for 8 s, 0 errors" in said
    assert "page" in said
    assert "MiB a minute" in said


def test_a_session_that_is_not_answered_is_an_error() -> None:
    measured = Measured()
    asyncio.run(Session("http://127.0.0.1:9", 0, measured).run(1e12))
    assert measured.held == 0
    assert len(measured.errors) == 1
