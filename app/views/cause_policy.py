"""How each cause is named, as the page of references lists it."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.causes.model import CAUSE_TEXTS
from steptax.app.compute.causes.policy import named_when


@dataclass(frozen=True)
class NamedCause:
    """One cause: when it is named, with the thresholds that hold, and what to do about it."""

    cause_id: str
    title: str
    lines: tuple[tuple[str, str], ...]
    """Title and text of each line."""


def named_causes() -> tuple[NamedCause, ...]:
    """Every cause that a job can have, in the order of ``docs/causes.md``."""
    return tuple(
        NamedCause(
            cause.value,
            f"{text.title[:1].upper()}{text.title[1:]}",
            (
                ("named when", named_when(cause)),
                ("next", text.action),
                ("would settle it", text.settle),
                ("id", cause.value),
            ),
        )
        for cause, text in CAUSE_TEXTS.items()
    )
