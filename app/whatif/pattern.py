"""Where the slowness of a job sits, in words.

The pattern of the grid of workers is the diagnosis (Lin et al., OSDI'25, sections 5 and 8): a hot
cell is a worker, a hot row a stage, hot cells everywhere that move are uneven micro-batches. More
than one can hold at once, so every sign is given with its strength.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from steptax.app.compute.spoken import spoken_ratio
from steptax.app.whatif.analysis import Analysis
from steptax.app.whatif.balance import SequenceSigns, sequence_signs
from steptax.app.whatif.interval import half_width
from steptax.app.whatif.questions import simulated_error
from steptax.app.whatif.report import MOST_ERROR, WhatIfResult
from steptax.app.whatif.signs import MOST_OF_LOSS, Cell, Sign, find_signs

#: Slowdown from which on a job counts as straggling (section 4.2).
STRAGGLING = 1.1
#: Part of a step that is rounding.
_ROUNDING = 1e-9
_ADVICE = {
    "worker": "swap or drain the named ranks' hosts, and run the node benchmark on them",
    "stage": "move layers off that stage, or speed up what only it does (loss, embedding)",
    "dp_rank": "look at what the ranks of that replica share: its data, its node or its switch",
    "uneven-sequences": "pack or deal sequences so that their squared lengths add up alike",
    "pauses": "collect garbage on all ranks in the same step: --manual-gc or gc.freeze",
    "elsewhere": "look at single steps: no place lasts",
}


class PatternKind(StrEnum):
    """The pattern of the grid of workers."""

    WORKER = "worker"
    """Few hot cells: slow workers."""
    STAGE = "stage"
    """A hot row: one pipeline stage has more to do than the others."""
    DP_RANK = "dp_rank"
    """A hot column: one data-parallel rank."""
    EVERYWHERE = "everywhere"
    """Hot here and there, another place in each step: uneven micro-batches, pauses, noise."""
    NONE = "none"
    """The job loses no more than its simulation errs."""
    UNTELLABLE = "untellable"
    """The simulation is too far from what was measured, or there is none."""


@dataclass(frozen=True)
class Pattern:
    """The verdict on the grid of workers.

    ``cells`` are those to highlight; ``signs`` come strongest first, those that hold before the
    others; ``sequence`` has correlation and coefficient of variation of each stage.
    """

    kind: PatternKind
    text: str
    next_action: str
    cells: tuple[Cell, ...] = ()
    signs: tuple[Sign, ...] = ()
    sequence: tuple[SequenceSigns, ...] = ()


def no_pattern(reason: str) -> Pattern:
    """Where there is no simulation that could tell."""
    return Pattern(
        PatternKind.UNTELLABLE,
        f"No pattern can be told: {reason}.",
        "record what is missing, then ask again",
    )


def pattern_of_shares(result: WhatIfResult) -> Pattern:
    """The pattern where ranks have no place in a grid, by what the slowest few account for."""
    if result.S.value is None or not result.reliable:
        doubts = [w for w in result.S.warnings if not w.startswith("interval")]
        return no_pattern(result.S.reason or (doubts or ["the simulation is not reliable"])[0])
    share = result.M_W
    named = ", ".join(map(str, result.slowest_ranks[:8]))
    if share.value is None:
        text = f"No straggler: {share.reason}."
        return Pattern(PatternKind.NONE, text, "look at kernels and the network instead")
    holds = share.value >= MOST_OF_LOSS
    one = len(result.slowest_ranks) == 1
    sign = Sign(
        "worker",
        "slow workers",
        share,
        holds,
        f"Rank{'' if one else 's'} {named} account{'s' if one else ''} for "
        f"{spoken_ratio(share.value)} of the loss.",
    )
    if holds:
        return Pattern(PatternKind.WORKER, sign.text, _ADVICE["worker"], (), (sign,))
    text = f"No rank is slow alone: {sign.text[0].lower()}{sign.text[1:]}"
    return Pattern(PatternKind.EVERYWHERE, text, _ADVICE["elsewhere"], (), (sign,))


def find_pattern(analysis: Analysis) -> Pattern:
    """The pattern of ``analysis``; a few more simulations."""
    loss_s = float(analysis.nodelay_s.mean()) - analysis.ideal_span_s
    measured = float(analysis.model.work.base_s.mean())
    error = simulated_error(analysis)
    noise_s = float(half_width(analysis.nodelay_s)) + error * measured
    sequence = sequence_signs(analysis.model.trace)
    worst = max(error, analysis.replay_error_ratio)
    if worst > MOST_ERROR:
        pattern = no_pattern(
            f"the model is off by {spoken_ratio(worst)} where {spoken_ratio(MOST_ERROR)} are "
            "allowed, so its dependencies are not this job's"
        )
        return Pattern(pattern.kind, pattern.text, pattern.next_action, sequence=sequence)
    if loss_s <= noise_s or analysis.slowdown < analysis.threshold:
        return _nothing(analysis, loss_s, noise_s, sequence)
    signs = find_signs(analysis, loss_s, sequence)
    signs.sort(key=lambda s: (not s.holds, -(s.strength.value or 0.0)))
    strongest = signs[0]
    kind = {
        "worker": PatternKind.WORKER,
        "stage": PatternKind.STAGE,
        "dp_rank": PatternKind.DP_RANK,
    }.get(strongest.name, PatternKind.EVERYWHERE)
    others = [s for s in signs[1:] if s.holds]
    text = strongest.text + ("" if not others else " Besides: " + " ".join(s.text for s in others))
    if analysis.slowdown < STRAGGLING:
        text += f" At S below {STRAGGLING:g} this is a mild case."
    return Pattern(
        kind,
        text,
        _ADVICE[strongest.name],
        tuple(dict.fromkeys(cell for s in signs if s.holds for cell in s.cells)),
        tuple(signs),
        sequence,
    )


def _nothing(
    analysis: Analysis, loss_s: float, noise_s: float, sequence: tuple[SequenceSigns, ...]
) -> Pattern:
    """No straggler, or none that can be told from chance."""
    measured = float(analysis.model.work.base_s.mean())
    limit_ms = max(noise_s, (analysis.threshold - 1) * measured) * 1e3
    against = f"{abs(loss_s) * 1e3:.3g} ms {'longer' if loss_s >= 0 else 'shorter'} than"
    if abs(loss_s) < _ROUNDING * measured:
        against = "as long as"
    step = f"a step of {measured * 1e3:.4g} ms is {against} the ideal one"
    if loss_s <= noise_s and analysis.slowdown >= max(STRAGGLING, analysis.threshold):
        steps = len(analysis.nodelay_s)
        return Pattern(
            PatternKind.UNTELLABLE,
            f"No pattern can be told from chance: {step}, but over {steps} step"
            f"{'' if steps == 1 else 's'} as different as these it may be off by "
            f"{limit_ms:.3g} ms.",
            "record more steps",
            sequence=sequence,
        )
    return Pattern(
        PatternKind.NONE,
        f"No straggler: {step}, within {limit_ms:.3g} ms that cannot be told from noise.",
        "nothing to repair; look at launch delays, kernels and the network instead",
        sequence=sequence,
    )
