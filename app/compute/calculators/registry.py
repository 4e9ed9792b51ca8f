"""All calculators by name: a new one is a module with its ``CALCULATORS`` and one line here."""

from __future__ import annotations

from typing import Any

from steptax.app.compute.calculators import (
    any_slow,
    backup_workers,
    break_even,
    build_or_rent,
    busbw,
    checkpoint_interval,
    collective_time,
    commitment,
    compute_equivalent_gain,
    expected_max,
    failures,
    gc_sync,
    hot_spares,
    kernel_speedup,
    learning_velocity,
    local_sgd,
    mfu,
    remove_worst,
    scaling_law,
    sequence_balance,
    stragglar,
    train_time,
    waste,
)
from steptax.app.compute.calculators.base import Calculator
from steptax.app.errors import NotFoundError

#: In the order in which a person meets them.
_MODULES = (
    kernel_speedup,
    mfu,
    train_time,
    expected_max,
    any_slow,
    waste,
    remove_worst,
    backup_workers,
    stragglar,
    local_sgd,
    gc_sync,
    sequence_balance,
    checkpoint_interval,
    failures,
    hot_spares,
    break_even,
    build_or_rent,
    commitment,
    busbw,
    collective_time,
    learning_velocity,
    compute_equivalent_gain,
    scaling_law,
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
