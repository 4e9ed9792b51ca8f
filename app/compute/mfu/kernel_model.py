"""A step whose kernel gets faster: what shrinks with it, what comes into the open, what stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

from steptax.app.errors import UserError


@dataclass(frozen=True)
class StepParts:
    """The parts of a step that add up to it, in ms."""

    compute_ms: float
    comm_ms: float
    wait_ms: float
    other_ms: float

    @property
    def total_ms(self) -> float:
        """The step."""
        return self.compute_ms + self.comm_ms + self.wait_ms + self.other_ms


@dataclass(frozen=True)
class Assumption:
    """What a measurement of the old step may not tell.

    ``hidden_ms``: communication that ran under compute. ``follows_ratio``: share of the wait that
    shrinks with compute. ``slack``: hidden communication stays hidden as long as it fits.
    """

    hidden_ms: float
    follows_ratio: float
    slack: bool


@dataclass(frozen=True)
class KernelModel:
    """The measured step and how it may change; None = not known."""

    before: StepParts
    accelerated_ratio: float = 1.0
    hidden_comm_ms: float | None = None
    wait_follows_ratio: float | None = None
    spread_factor: float = 1.0
    overlap_window_ms: float | None = None
    overlap_limit_ratio: float = 1.0
    comm_contention: float = 1.0

    def __post_init__(self) -> None:
        """Refuse more hidden communication than there is compute to hide it under.

        Raises:
            UserError: also when the overlap window is longer than the compute.
        """
        if self.window_ms > self.before.compute_ms:
            raise UserError(
                f"expected at most the compute, {self.before.compute_ms:g} ms",
                where="overlap_window_ms",
            )
        if self.hidden_comm_ms is not None and self.hidden_comm_ms > self.most_hidden_ms:
            raise UserError(
                f"expected at most {self.most_hidden_ms:g} ms, the compute that it can hide under, "
                f"not {self.hidden_comm_ms:g}",
                where="hidden_comm_ms",
            )

    @property
    def window_ms(self) -> float:
        """Compute under which communication can run at all."""
        known = self.overlap_window_ms
        return self.before.compute_ms if known is None else known

    @property
    def most_hidden_ms(self) -> float:
        """Most communication that can have been hidden."""
        return self.overlap_limit_ratio * self.window_ms

    @property
    def nominal(self) -> Assumption:
        """What is known, else nothing hidden and a wait that stays."""
        return Assumption(self.hidden_comm_ms or 0.0, self.wait_follows_ratio or 0.0, slack=False)

    @property
    def corners(self) -> tuple[Assumption, ...]:
        """The extremes of what is not known. The step is monotone in each, so they bound it."""
        hidden = (0.0, self.most_hidden_ms)
        if self.hidden_comm_ms is not None:
            hidden = (self.hidden_comm_ms, self.hidden_comm_ms)
        follows = (0.0, 1.0)
        if self.wait_follows_ratio is not None:
            follows = (self.wait_follows_ratio, self.wait_follows_ratio)
        return tuple(Assumption(*c) for c in product(hidden, follows, (False, True)))

    def after(self, speedup: float, assumed: Assumption) -> StepParts:
        """The step with the kernel ``speedup`` times faster (infinity allowed)."""
        old = self.before
        compute_ms = old.compute_ms * (
            1 - self.accelerated_ratio + self.accelerated_ratio / speedup
        )
        shrink = compute_ms / old.compute_ms
        transfer_ms = self.comm_contention * (old.comm_ms + assumed.hidden_ms)
        if assumed.slack:
            room = self.overlap_limit_ratio * self.window_ms * shrink
            hidden_ms = min(self.comm_contention * assumed.hidden_ms, room)
        else:
            hidden_ms = assumed.hidden_ms * min(1.0, shrink)
        follows = assumed.follows_ratio * shrink * self.spread_factor
        return StepParts(
            compute_ms,
            transfer_ms - hidden_ms,
            old.wait_ms * (follows + 1 - assumed.follows_ratio),
            old.other_ms,
        )

    def band(
        self, speedup: float, read: Callable[[StepParts], float]
    ) -> tuple[float, float, float]:
        """(nominal, low, high) of what ``read`` takes from the new step."""
        ends = [read(self.after(speedup, corner)) for corner in self.corners]
        nominal = read(self.after(speedup, self.nominal))
        return nominal, min(ends), max(ends)

    def step_speedup(self, speedup: float) -> tuple[float, float, float]:
        """(nominal, low, high) of old step / new step; below 1 the job got slower."""
        return self.band(speedup, lambda after: self.before.total_ms / after.total_ms)


def speedup_curve(
    model: KernelModel, speedups: Iterable[float]
) -> tuple[tuple[float, float, float, float], ...]:
    """(kernel speed-up, step speed-up, low, high) for each of ``speedups``."""
    return tuple((s, *model.step_speedup(s)) for s in speedups)
