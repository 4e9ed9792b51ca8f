"""What the late ranks spend their extra time on, and the likely reason, from evidence at hand.

The phases of the late reports are compared with the median of the peers. Each phase that carries
a good part of the excess gives one hint; several causes may hold at once, so hints carry their
share and are never reduced to the first that matches. Extra compute is laid to sequence length
only if it follows them and they explain it (``sequence_fit``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.causes.sequence_fit import SequenceFit, fit_sequences, known_mean
from steptax.app.compute.spoken import spoken_ratio, spoken_us
from steptax.app.compute.stats.rows import Floats
from steptax.app.compute.straggler.arrival import Arrivals, Basis, is_measured
from steptax.app.compute.straggler.peers import peer_median_at
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.steps import StepMatrix

#: Own time that no measured phase names.
HOST = "host"
_EQUAL_SEQUENCES_RATIO = 0.02

_TITLES = {
    "input": "waiting for data",
    "checkpoint": "writing checkpoints",
    "h2d": "host-to-device copies",
    "gc": "garbage collector pauses",
    "other": "other measured time",
    "collective": "its collective, before it has called the communication library or behind it",
    HOST: "host time outside of the measured phases",
}
_SETTLE = {
    "input": "data loader queue depth and storage latency of that host",
    "checkpoint": "checkpoint_save events of that rank",
    "h2d": "PCIe generation and width of that device, and whether its host buffers are pinned",
    "gc": "the same job with collection at planned steps",
    "other": "what the source counts as other time",
    "collective": "a profile of that rank from the begin of its collective to the library's call: "
    "packing, copies to the host, hooks, locks",
    HOST: "a profiler trace of that rank: launch gaps, Python time, CPU steal",
}
SETTLE_DEVICE = (
    "clock, throttle reasons, Xid and ECC of that device, or a matrix multiplication on it"
)
_SETTLE_SEQUENCE = "sequence lengths per rank and step (seq_sq_sum, or tokens)"


@dataclass(frozen=True)
class PhaseExcess:
    """Mean time over the peers' median that the late reports spend in a phase."""

    phase: str
    excess_us: float
    share_ratio: float
    """Of the excess in work; below 0 or above 1 where phases make up for each other."""


@dataclass(frozen=True)
class Hint:
    """A likely reason with what speaks for and against it, and what would settle it."""

    id: str
    title: str
    share_ratio: float
    """Share of the excess that it carries."""
    evidence_for: tuple[str, ...]
    evidence_against: tuple[str, ...] = ()
    settle: tuple[str, ...] = ()
    confidence: float | None = None
    """None until the detector has been scored on injected faults."""


@dataclass(frozen=True)
class Explanation:
    """Phases and hints for the late reports, or why there are none."""

    phases: tuple[PhaseExcess, ...] = ()
    hints: tuple[Hint, ...] = ()
    reason: str | None = None

    @property
    def dominant(self) -> PhaseExcess | None:
        """The phase with the largest excess."""
        return max(self.phases, key=lambda p: p.excess_us, default=None)


def explain(
    matrix: StepMatrix,
    arrived: Arrivals,
    excess_us: Floats,
    cells: tuple[NDArray[np.intp], NDArray[np.intp]],
    rules: StragglerRules,
) -> Explanation:
    """Explain the late reports ``cells`` (step and rank positions) of the used reports.

    ``excess_us`` [S, R] is work over the peers' median. The culprit's reports are all on one rank,
    those of a moving straggler are the last ones of each slow step.
    """
    total = known_mean(excess_us[cells])
    if not total > 0:
        return Explanation(reason="the late ranks do not work longer than their peers")
    parts = measured_parts(matrix, arrived, rules)
    sequences = _sequence_column(matrix, rules)
    if not parts and sequences is None:
        return Explanation(
            reason="cause not named: per-rank phases (compute_us, input_us, gc_us, ...) are missing"
        )

    def over_peers(values: Floats) -> float:
        return known_mean(values[cells] - peer_median_at(values, cells, matrix.stage))

    phases = []
    for name, values in parts.items():
        late = over_peers(values)
        if not np.isnan(late):
            phases.append(PhaseExcess(name, late, late / total))
    hints = [
        _phase_hint(p)
        for p in phases
        if p.phase != "compute" and p.share_ratio >= rules.hint_share_ratio
    ]
    computing = next((p for p in phases if p.phase == "compute"), None)
    # Without phases the whole own work stands in for compute.
    own = PhaseExcess("work", total, 1.0) if not parts else computing
    if own is not None and own.share_ratio >= rules.hint_share_ratio:
        values = parts["compute"] if computing is not None else arrived.work_us
        fit = None
        if sequences is not None:
            fit = fit_sequences(values, sequences, matrix.stage, cells, over_peers, own.excess_us)
        hints += _compute_hints(own, fit, matrix.seq_sq_sum is not None, rules)
    hints.sort(key=lambda hint: -hint.share_ratio)
    reason = None if hints else "no measured phase carries a good part of the excess"
    return Explanation(tuple(phases), tuple(hints), reason)


def measured_parts(
    matrix: StepMatrix, arrived: Arrivals, rules: StragglerRules
) -> dict[str, Floats]:
    """[S, R] each measured phase, and own time that they leave over when compute is among them."""
    reported = matrix.reported
    parts = {n: v for n, v in matrix.phases.items() if is_measured(v, reported, rules)}
    if matrix.work_is_partial:
        return {name: values for name, values in parts.items() if name == "compute"}
    if "compute" in parts and arrived.choice.basis is not Basis.PHASES:
        named = sum((np.nan_to_num(v) for v in matrix.phases.values()), np.zeros(reported.shape))
        parts[HOST] = arrived.work_us - named
    return parts


def _sequence_column(matrix: StepMatrix, rules: StragglerRules) -> Floats | None:
    reported = matrix.reported
    for values in (matrix.seq_sq_sum, matrix.tokens):
        if is_measured(values, reported, rules):
            return values
    return None


def _phase_hint(phase: PhaseExcess) -> Hint:
    return Hint(
        phase.phase,
        _TITLES[phase.phase],
        phase.share_ratio,
        (_share_text(phase, _TITLES[phase.phase]),),
        settle=(_SETTLE[phase.phase],),
    )


def _share_text(phase: PhaseExcess, title: str) -> str:
    return (
        f"{spoken_us(phase.excess_us)} a step over the peers' median in {title}: "
        f"{spoken_ratio(phase.share_ratio)} of the excess"
    )


def _compute_hints(
    own: PhaseExcess, fit: SequenceFit | None, squares: bool, rules: StragglerRules
) -> list[Hint]:
    """Extra compute split into what sequence lengths explain and what is left."""
    measured = _share_text(own, "compute" if own.phase == "compute" else "own work")
    slow = "slow compute: device, host or kernel, not separable without device signals"
    if own.phase == "work":
        slow = "slow work of its own: phases would tell compute, input and host apart"
    settle = (SETTLE_DEVICE,) if own.phase == "compute" else ("per-rank phases (compute_us, ...)",)
    if fit is None:
        return [
            Hint(
                "slow_compute", slow, own.share_ratio, (measured,), (), (_SETTLE_SEQUENCE, *settle)
            )
        ]
    what = "squared sequence length" if squares else "tokens"
    follows = f"work follows {what} over all ranks and steps: correlation {fit.correlation:.2f}"
    if fit.correlation < rules.sequence_correlation:
        whose = "on the other ranks alone" if fit.of_others else "over all ranks"
        follows += f", clear {whose}: slope {fit.slope_t:.1f} times its error"
    explains = (
        f"the late reports have {spoken_ratio(fit.excess_ratio)} more {what} than their peers, "
        + (
            # More than all of it is the error of the slope, and no finding.
            "which accounts for all of it"
            if fit.explained_ratio >= 1.0
            else f"which accounts for {spoken_ratio(max(0.0, fit.explained_ratio))} of it"
        )
    )
    if fit.holds(rules):
        share = own.share_ratio * min(1.0, fit.explained_ratio)
        hints = [
            Hint(
                "sequence_length",
                "sequence-length imbalance",
                share,
                (measured, follows, explains),
                settle=("the same batches on another rank",),
            )
        ]
        if own.share_ratio - share >= rules.hint_share_ratio:
            rest = f"{spoken_ratio(own.share_ratio - share)} of the excess is left over by {what}"
            hints.append(
                Hint("slow_compute", slow, own.share_ratio - share, (rest,), (follows,), settle)
            )
        return hints
    if abs(fit.excess_ratio) < _EQUAL_SEQUENCES_RATIO:
        within = spoken_ratio(_EQUAL_SEQUENCES_RATIO)
        equal = f"{what} of the late reports equals the peers' within {within}"
        return [Hint("slow_compute", slow, own.share_ratio, (measured, equal), (), settle)]
    return [Hint("slow_compute", slow, own.share_ratio, (measured,), (explains,), settle)]


def stage_hint(share: float) -> Hint:
    """What speaks for a heavy stage, to which ``share`` of the waiting is due."""
    return Hint(
        "stage_imbalance",
        "pipeline stages of unequal work",
        share,
        (
            f"{spoken_ratio(share)} of the waiting lies between stages",
            "no rank stands out for good from the others of its own stage",
        ),
        settle=("a per-operation trace: the step time with balanced stages can then be simulated",),
    )
