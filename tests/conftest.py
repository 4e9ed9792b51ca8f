"""Fixtures for all tests."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import settings

from steptax.app.cli import main

# Run behind a shell, tests ignore Ctrl-C, and so would all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A test that other programs held up has not failed.
settings.register_profile("steptax", deadline=None)
settings.load_profile("steptax")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _main_is_main() -> Iterator[None]:
    """A page that a test ran is ``__main__`` after it, and would be run by processes to come."""
    main_module = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main_module


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """Path of a real file from a real system; skips the test where the collection is absent."""
    base = Path(os.environ.get("STEPTAX_SHARED", ROOT.parent / "shared")) / "data"

    def find(name: str) -> Path:
        path = base / name
        if not path.exists():
            pytest.skip(f"{name} is not in the collection of real files (set STEPTAX_SHARED)")
        return path

    return find


@pytest.fixture
def steptax(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """Run a command on a lake of the test's own; returns what ``--json`` prints.

    ``steptax("job", "x")`` gives the data of a success; ``steptax("job", "x", fails=2)`` the
    error of a command that must leave with that exit code; ``exits=3`` the data of a success that
    leaves with another code than 0.
    """
    monkeypatch.setenv("STEPTAX_LAKE", str(tmp_path / "lake"))
    monkeypatch.delenv("STEPTAX_PRICE_USD_PER_GPU_HOUR", raising=False)

    def run(*arguments: object, fails: int = 0, exits: int = 0) -> Any:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["steptax", *map(str, arguments), "--json"])
        with pytest.raises(SystemExit) as left:
            main()
        printed = orjson.loads(capsys.readouterr().out)
        assert left.value.code == (fails or exits), printed
        assert printed["ok"] is (fails == 0)
        return printed["error"] if fails else printed["data"]

    return run
