"""An environment variable that cannot be used is named, as a mistake of whoever set it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STEPTAX_PRICE_USD_PER_GPU_HOUR", "abc"),
        ("STEPTAX_PRICE_USD_PER_GPU_HOUR", "-1"),
        ("STEPTAX_ANYONE_MAY_READ", "perhaps"),
        ("STEPTAX_LOG_LEVEL", "loud"),
        ("STEPTAX_ENGINE", "abacus"),
    ],
)
def test_it_is_named_with_what_it_holds(
    name: str, value: str, steptax: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    said = steptax("jobs", fails=2)
    assert said["where"] == f"the environment, {name}"
    assert repr(value) in said["message"]
    assert "\n" not in said["message"]
    assert f"unset {name}" in said["hint"]
