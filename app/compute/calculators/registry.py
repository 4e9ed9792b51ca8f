"""All calculators by name: a new one is a module with its ``CALCULATORS`` and one line here."""

from __future__ import annotations

from typing import Any

from steptax.app.compute.calculators import (
    any_slow,
    backup_workers,
    break_even,
    checkpoint_interval,
    expected_max,
    failures,
    gc_sync,
    hot_spares,
    kernel_speedup,
    local_sgd,
    remove_worst,
    sequence_balance,
    waste,
)
from steptax.app.compute.calculators.base import Calculator
from steptax.app.errors import NotFoundError

_MODULES = (
    kernel_speedup,
    expected_max,
    any_slow,
    waste,
    checkpoint_interval,
    failures,
    backup_workers,
    local_sgd,
    gc_sync,
    sequence_balance,
    remove_worst,
    hot_spares,
    break_even,
)

CALCULATORS: dict[str, Calculator[Any, Any]] = {
    entry.name: entry for module in _MODULES for entry in module.CALCULATORS
}


def calculator(name: str) -> Calculator[Any, Any]:
    """The calculator called ``name``.

    Raises:
        NotFoundError: there is none; the hint lists those that there are.
    """
    try:
        return CALCULATORS[name]
    except KeyError:
        raise NotFoundError(
            f"no calculator {name!r}", where="calc", hint=", ".join(CALCULATORS)
        ) from None
