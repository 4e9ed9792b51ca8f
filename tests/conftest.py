"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


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
