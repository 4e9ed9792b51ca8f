"""Hooks that a framework calls: what goes wrong in one is said once and never raised."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from steptax.connectors.recorder.notes import logger

_said: set[str] = set()


def warn_once(what: str, error: BaseException) -> None:
    """Warn of ``error``, once per ``what``."""
    if what in _said:
        return
    _said.add(what)
    with contextlib.suppress(Exception):  # a log handler of the host program may raise
        logger.warning("%s: %s: %s (training goes on)", what, type(error).__name__, error)


def quiet(hook: Callable[..., None]) -> Callable[..., None]:
    """``hook`` without its exceptions."""

    @functools.wraps(hook)
    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            hook(*args, **kwargs)
        except Exception as error:
            warn_once(f"recording in {hook.__name__}", error)

    return guarded
