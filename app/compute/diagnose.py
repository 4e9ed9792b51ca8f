"""From the steps of a job and what is known beside them to findings with causes.

The statistics of ``straggler`` say how much is lost to waiting, and whether it is one rank, a stage
or nobody in particular; the episodes say who was slow when; the attribution says why. This puts
them together: one list of findings, costliest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from steptax.app.compute.arrival import arrivals
from steptax.app.compute.cause_device import DeviceEvidence
from steptax.app.compute.cause_groups import (
    GROUPS,
    Coordinates,
    Joint,
    join_episodes,
    slow_places,
)
from steptax.app.compute.cause_model import CauseVerdict, Diagnosis, Finding, Scope
from steptax.app.compute.cause_onset import Window
from steptax.app.compute.causes import rank_cause, sample_of, transfer_cause
from steptax.app.compute.diagnose_wide import job_findings, moving_finding, stage_finding
from steptax.app.compute.episodes import (
    crowded,
    excess_ratios,
    find_episodes,
    usual_step_us,
)
from steptax.app.compute.rank_episodes import RankEpisode, dated_span
from steptax.app.compute.recover import saved_us
from steptax.app.compute.recurring import first_told, usual_steps
from steptax.app.compute.rows import Floats
from steptax.app.compute.rules import (
    CAUSE_RULES,
    EPISODE_RULES,
    RECURRING_RULES,
    CauseRules,
    EpisodeRules,
)
from steptax.app.compute.spoken import spoken_list
from steptax.app.compute.steps import StepMatrix, without_inconsistent
from steptax.app.compute.straggler_result import Kind, StragglerResult
from steptax.app.compute.straggler_tables import Used

#: Findings whose cause is looked into, costliest first.
MOST_FINDINGS = 24
_TITLES = {
    "host": "host",
    "expert": "expert place",
    "tp_group": "tensor-parallel group",
    "dp_group": "data-parallel group",
    "replica": "data-parallel replica",
    "stage": "pipeline stage",
}


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known beside the steps; every part may be absent. Columns are those of the matrix."""

    places: Coordinates = field(default_factory=dict)
    """Coordinate of each rank [R] by kind (tp, pp, dp, ep, host as a number)."""
    host_names: Sequence[str | None] = ()
    """[R]"""
    devices: Callable[[], DeviceEvidence | None] | None = None
    """Loads what the devices reported; asked once, and only when there is a finding to explain."""


def diagnose(
    matrix: StepMatrix,
    result: StragglerResult,
    evidence: Evidence,
    *,
    rules: EpisodeRules = EPISODE_RULES,
    cause_rules: CauseRules = CAUSE_RULES,
) -> Diagnosis:
    """Findings about the steps that ``result`` used; it must be of the same ``matrix``."""
    reason = result.basis.unknown or result.coverage.reason
    if reason is not None or result.ranks is None:
        return Diagnosis(reason=reason or result.verdict.text)
    matrix, _ = without_inconsistent(matrix)
    steps, columns = result.coverage.step_places, result.coverage.rank_places
    part = matrix.select(steps, columns)
    return _Case(
        Used.of(part, arrivals(part, result.basis), result.rules),
        result,
        _selected(evidence, columns),
        columns,
        rules,
        cause_rules,
    ).diagnosis()


def _selected(evidence: Evidence, columns: np.ndarray) -> Evidence:
    names = [evidence.host_names[c] for c in columns] if evidence.host_names else ()
    places = {kind: values[columns] for kind, values in evidence.places.items()}
    return Evidence(places, names, evidence.devices)


@dataclass(frozen=True, eq=False)
class _Case:
    used: Used
    result: StragglerResult
    evidence: Evidence
    columns: np.ndarray
    """Positions of the used ranks in the whole matrix."""
    rules: EpisodeRules
    cause_rules: CauseRules

    @cached_property
    def devices(self) -> DeviceEvidence | None:
        """What the devices of the used ranks reported."""
        load = self.evidence.devices
        loaded = None if load is None else load()
        if loaded is None:
            return None
        return DeviceEvidence([loaded.ranks[c] for c in self.columns], loaded.samples)

    def diagnosis(self) -> Diagnosis:
        job = job_findings(self.used, self.evidence.places, self.rules, self.cause_rules)
        ranks = [*self._ranks(), *self._transfers()]
        ranks = [f for f in ranks if not any(self._belongs(f, wide) for wide in job)]
        findings = [*ranks, *stage_finding(self.used, self.result), *job]
        if not any(f.scope in (Scope.RANKS, Scope.STAGE) for f in findings):
            # What slows all ranks by much is never quite the same on each of them.
            moving = moving_finding(self.used, self.result, self.cause_rules)
            findings += [f for f in moving if all(f.part != wide.part for wide in job)]
        findings.sort(key=lambda f: -(f.lost_ratio or 0.0))
        return Diagnosis(tuple(findings))

    def _belongs(self, finding: Finding, wide: Finding) -> bool:
        """Whether a rank is slow only in that what slows all ranks is not the same on each."""
        shared = min(finding.last_step, wide.last_step) - max(finding.first_step, wide.first_step)
        length = finding.last_step - finding.first_step
        return (
            finding.part == wide.part
            and 2 * shared >= length
            and finding.excess_ratio < self.rules.job_covers_ratio * wide.excess_ratio
        )

    def _episodes(self, excess: Floats) -> list[RankEpisode]:
        return find_episodes(excess, self.used.arrived.step_us, self.rules)

    def _joints(self, found: list[RankEpisode], excess: Floats) -> list[Joint]:
        steps, ranks = self.used.excess_us.shape
        busy = crowded(found, ranks, steps, self.rules)
        found = [e for e in found if busy[e.first : e.last + 1].mean() < 0.5]
        joints = join_episodes(found, self.evidence.places, self.rules, self.cause_rules, excess)
        joints.sort(key=lambda j: -j.excess_ratio * j.steps)
        return joints

    def _ranks(self) -> list[Finding]:
        used = self.used
        excess = excess_ratios(used.arrived.work_us, used.arrived.step_us, used.matrix.stage)
        excess[~usual_steps(used.arrived.work_us, RECURRING_RULES)] = np.nan
        out = []
        episodes = self._for_good(excess, self._episodes(excess))
        for joint in self._joints(episodes, excess)[:MOST_FINDINGS]:
            seen = sample_of(used.matrix, used.arrived, used.excess_us, joint)
            verdict, also, part = rank_cause(
                seen,
                joint,
                self.evidence.places,
                self.devices,
                self._window(joint),
                used.rules,
                self.cause_rules,
            )
            out.append(self._finding(joint, part, verdict, also, self._lost(joint)))
        return out

    def _for_good(self, excess: Floats, episodes: list[RankEpisode]) -> list[RankEpisode]:
        """The episodes, and those of ranks that the statistics of the whole window call slow.

        Among a few ranks that differ widely, or where half of them are slow, a slow one is not far
        outside of the noise; what is slow in most of the steps counts all the same. Of a rank that
        is slow again and again over the window, episodes would tell a part only.
        """
        verdict = self.result.verdict
        if verdict.kind is not Kind.WORKER or self.result.slow_links is not None:
            return episodes
        again = {
            int(np.flatnonzero(self.used.matrix.ranks == rank)[0]): found
            for rank, found in self.result.recurring.items()
        }
        out = [e for e in episodes if e.column not in again]
        seen = {e.column for e in out}
        usual, last_step = usual_step_us(self.used.arrived.step_us), len(excess) - 1
        for place in np.flatnonzero(np.isin(self.used.matrix.ranks, verdict.ranks)):
            c = int(place)
            if c in seen:
                continue
            detected = min((e.detected for e in episodes if e.column == c), default=last_step)
            one = again.get(c)
            if one is not None and detected == last_step:
                detected = first_told(self.used.excess_us, c, one, 0.0, RECURRING_RULES)
            if one is None:
                first, last = dated_span(excess[:, c], self.rules)
                is_open = last >= last_step - self.rules.close_window_steps // 2
            else:
                one = replace(one, level=one.level / usual)
                first, last, is_open = one.first, one.last, True
            mean = float(np.nanmean(excess[first : last + 1, c]))
            often = 1.0 if one is None else one.duty_ratio
            out.append(RankEpisode(c, first, last, detected, mean, often, is_open, one))
        return out

    def _transfers(self) -> list[Finding]:
        transfer = self.used.arrived.transfer_us
        # Only measured transfers differ between ranks; the estimate from communication does not.
        if transfer is None or self.used.matrix.wait_us is None:
            return []
        # Stages move different amounts, so a group is held against its past, and against the ranks
        # of its stage in case that it was slow all along.
        values, step_us = transfer, self.used.arrived.step_us
        excess = np.fmax(
            excess_ratios(values, step_us, None, own_past=True),
            excess_ratios(values, step_us, self.used.matrix.stage),
        )
        out = []
        for joint in self._joints(self._episodes(excess), excess)[:MOST_FINDINGS]:
            verdict, also = transfer_cause(
                joint,
                excess[joint.first : joint.last + 1],
                self.evidence.places,
                self.devices,
                self._window(joint),
                self.cause_rules,
            )
            out.append(self._finding(joint, "transfer", verdict, also, self._longer(joint)))
        return out

    def _finding(
        self,
        joint: Joint,
        part: str | None,
        verdict: CauseVerdict,
        also: tuple[CauseVerdict, ...],
        lost: float | None,
    ) -> Finding:
        steps = self.used.matrix.steps
        usual = usual_step_us(self.used.arrived.step_us)
        excess = joint.excess_ratio if joint.again is None else joint.again.level
        return Finding(
            Scope.RANKS,
            self._place(joint),
            tuple(int(self.used.matrix.ranks[c]) for c in joint.columns),
            int(steps[joint.first]),
            int(steps[joint.last]),
            int(steps[joint.detected]),
            joint.is_open,
            excess * usual,
            excess,
            part,
            lost,
            verdict,
            also,
            in_steps=None if joint.again is None else (len(slow_places(joint)), joint.steps),
        )

    def _place(self, joint: Joint) -> str:
        ranks = sorted(int(self.used.matrix.ranks[c]) for c in joint.columns)
        if len(ranks) == 1:
            return f"rank {ranks[0]}"
        said = f"ranks {spoken_list(ranks)}"
        if not joint.kinds:
            return said
        kind = joint.kinds[0]
        column = joint.columns[0]
        if kind == "host":
            name = self.evidence.host_names[column] if self.evidence.host_names else None
            return f"host {name} ({said})"
        where = ", ".join(
            f"{key.upper()} {int(self.evidence.places[key][column])}" for key in GROUPS[kind]
        )
        return f"{_TITLES[kind]} {where} ({said})"

    def _lost(self, joint: Joint) -> float:
        """Share of the paid time of the window that comes back without this episode."""
        steps = slow_places(joint)
        rows = steps[np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 256)).astype(int))]
        arrived = self.used.arrived
        saved = saved_us(
            arrived.arrival_us[rows],
            self.used.excess_us[rows],
            np.array(joint.columns, dtype=np.intp),
        )
        return self._of_paid(float(np.nanmean(saved)) * len(steps), joint)

    def _longer(self, joint: Joint) -> float:
        """The same of transfers, by how much longer they take."""
        usual = usual_step_us(self.used.arrived.step_us)
        excess = joint.excess_ratio if joint.again is None else joint.again.level
        return self._of_paid(excess * usual * len(slow_places(joint)), joint)

    def _of_paid(self, lost_us: float, joint: Joint) -> float:
        """``lost_us`` as a share of the window, no more than the steps of ``joint`` are."""
        step_us = self.used.arrived.step_us
        spanned = float(step_us[slow_places(joint)].sum())
        return min(lost_us, spanned) / float(step_us.sum())

    def _window(self, joint: Joint) -> Window | None:
        start = self.used.matrix.start_us
        if start is None or np.isnan(start).all():
            return None
        moments = np.nanmedian(start, axis=1)
        begin = int(moments[joint.first])
        end = int(moments[joint.last] + self.used.arrived.step_us[joint.last])
        first = int(moments[0])
        near = self.cause_rules.onset_steps
        since = int(moments[max(0, joint.first - near)])
        until = int(moments[min(joint.last, joint.first + near)])
        before = (first, begin) if joint.first >= self.rules.min_steps else None
        return Window(before, (begin, end), (since, until))
