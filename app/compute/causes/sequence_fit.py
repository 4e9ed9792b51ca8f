"""How far extra compute follows the lengths of the sequences.

Compute has to follow the sequence lengths over all ranks and steps *and* the fitted slope has to
explain the excess: correlation alone would also be high for one slow worker (Lin et al., OSDI'25,
section 5.3, with that addition).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.stats.rows import Floats, row_count, row_sum
from steptax.app.compute.straggler.rules import StragglerRules


@dataclass(frozen=True)
class SequenceFit:
    """What sequence lengths say about the extra compute of the late reports."""

    correlation: float
    """Of work and sequence measure, each less its mean over the stage in that step."""
    excess_ratio: float
    """Sequence measure of the late reports over their peers' median."""
    explained_ratio: float
    """Share of the excess in compute that the slope accounts for."""
    explained_low_ratio: float
    """The same at the lower end of the slope's interval."""
    slope_t: float
    """Slope over its standard error; infinite where it was taken in proportion, not fitted."""
    of_others: bool
    """Whether the slope comes from the other ranks alone."""

    def holds(self, rules: StragglerRules) -> bool:
        """Whether sequence lengths account for a good part of the excess, noise considered.

        Noise on the host weakens the correlation without weakening the cause, so a slope that is
        clearly above zero on the *other* ranks counts as much as a high correlation.
        """
        follows = self.correlation >= rules.sequence_correlation or (
            self.slope_t >= rules.sequence_slope_t and self.slope_t != float("inf")
        )
        return follows and self.explained_low_ratio >= rules.sequence_explains_ratio


def fit_sequences(
    values: Floats,
    sequences: Floats,
    stage: NDArray[np.int32] | None,
    cells: tuple[NDArray[np.intp], NDArray[np.intp]],
    over_peers: Callable[[Floats], float],
    excess_us: float,
) -> SequenceFit | None:
    """How far compute ``values`` [S, R] follows the sequence lengths; None where they never differ.

    ``cells`` are the late reports, ``excess_us`` is how much longer they compute than their peers,
    and ``over_peers`` gives that of any other column.
    """
    x = _centred(sequences, stage)
    if not np.nan_to_num(x).any():
        return None
    y = _centred(values, stage)
    known = ~np.isnan(x) & ~np.isnan(y)
    spread = float(np.sqrt(np.mean(x[known] ** 2) * np.mean(y[known] ** 2)))
    late = over_peers(sequences)
    typical = known_mean(sequences[cells]) - late
    if not spread > 0 or not typical > 0:
        return None
    correlation = float(np.mean(x[known] * y[known])) / spread
    # The late ranks' own lever must not fit their own excuse: the slope comes from the other ranks
    # when the late reports are all on a few. Where those have equal sequences, compute can at most
    # grow in proportion.
    ranks = np.unique(cells[1])
    of_others = 2 * len(ranks) <= values.shape[1]
    if of_others:
        sequences_of_others, values_of_others = sequences.copy(), values.copy()
        sequences_of_others[:, ranks] = values_of_others[:, ranks] = np.nan
        x, y = _centred(sequences_of_others, stage), _centred(values_of_others, stage)
        known = ~np.isnan(x) & ~np.isnan(y)
    variation = float(np.mean(x[known] ** 2)) if known.any() else 0.0
    explains = late / excess_us
    if np.sqrt(variation) <= 0.005 * typical:
        share = (known_mean(values[cells]) - excess_us) / typical * explains
        return SequenceFit(correlation, late / typical, share, share, float("inf"), of_others)
    slope = float(np.mean(x[known] * y[known])) / variation
    rest = y[known] - slope * x[known]
    error = float(np.sqrt(np.mean(rest**2) / variation / max(1, rest.size - 2)))
    return SequenceFit(
        correlation,
        late / typical,
        slope * explains,
        (slope - 2.0 * error) * explains,
        slope / error if error > 0 else float("inf"),
        of_others,
    )


def known_mean(values: Floats) -> float:
    """Mean of what was reported, NaN if nothing was."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _centred(values: Floats, stage: NDArray[np.int32] | None) -> Floats:
    """[S, R] less the mean of each step and stage."""
    if stage is None:
        return values - (row_sum(values) / np.maximum(row_count(values), 1))[:, None]
    out = values.copy()
    for members in (np.flatnonzero(stage == one) for one in np.unique(stage)):
        out[:, members] = _centred(values[:, members], None)
    return out
