"""What was wrong with a trace, in words that name the place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class DroppedStep:
    """A step that is left out, with the first thing that is wrong with it."""

    step: int
    reason: str
    rank: int | None = None
    operation: str | None = None

    @property
    def where(self) -> str:
        """``step 21, rank 5, forward-compute 3 of stage 1``."""
        parts = [f"step {self.step}"]
        if self.rank is not None:
            parts.append(f"rank {self.rank}")
        if self.operation is not None:
            parts.append(self.operation)
        return ", ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return vars(self) | {"where": self.where}


@dataclass(frozen=True)
class Findings:
    """What was left out of a trace, and what to know of the rest.

    ``recorded_steps`` counts those in the source; ``left_out_dp`` are data-parallel ranks that
    were not recorded completely.
    """

    recorded_steps: int = 0
    dropped: tuple[DroppedStep, ...] = ()
    left_out_dp: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()

    def also(self, *warnings: str) -> Findings:
        """The same with more warnings."""
        return replace(self, warnings=self.warnings + warnings)

    def spoken(self) -> tuple[str, ...]:
        """Every finding as a sentence."""
        said = list(self.warnings)
        if self.left_out_dp:
            names = ", ".join(map(str, self.left_out_dp[:5]))
            said.append(f"{len(self.left_out_dp)} data-parallel ranks left out: {names}")
        if self.dropped:
            first = self.dropped[0]
            said.append(
                f"{len(self.dropped)} of {self.recorded_steps} steps left out, "
                f"first: {first.where}: {first.reason}"
            )
        return tuple(said)

    def as_json(self) -> dict[str, Any]:
        """Plain values; at most the first fifty steps are spelt out."""
        return {
            "recorded_steps": self.recorded_steps,
            "dropped_steps": len(self.dropped),
            "dropped": [d.as_json() for d in self.dropped[:50]],
            "left_out_dp": list(self.left_out_dp),
            "warnings": list(self.warnings),
        }
