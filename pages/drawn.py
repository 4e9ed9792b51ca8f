"""What all readers of one view share of its page: figures above all."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from steptax.app.views.kept import OfView

T = TypeVar("T")

#: Figures of one view, each with the choices of a few readers.
_kept = OfView(32)


def drawn(
    view: object, draw: Callable[..., T], part: Any, *choices: Hashable, **named: Hashable
) -> T:
    """What ``draw`` makes of ``part``, which follows from ``view`` and the choices alone.

    It is shared between readers, so it must not be changed.
    """
    key = (draw.__module__, draw.__qualname__, choices, tuple(named.items()))
    return _kept.get(view, key, lambda: draw(part, *choices, **named))
