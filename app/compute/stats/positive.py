"""Refusing what must be positive."""

from __future__ import annotations

import math

from steptax.app.errors import UserError


def require_positive(**values: float) -> None:
    """Refuse each of ``values`` that is not positive and finite, by its name.

    Raises:
        UserError: the first that is not.
    """
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise UserError(f"must be positive, not {value}", where=name)
