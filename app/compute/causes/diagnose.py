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

from steptax.app.compute.causes.attribution import rank_cause
from steptax.app.compute.causes.device import DeviceEvidence
from steptax.app.compute.causes.diagnose_wide import (
    job_findings,
    majority_part,
    moving_finding,
    stage_finding,
)
from steptax.app.compute.causes.groups import Coordinates, Joint, join_episodes, slow_places
from steptax.app.compute.causes.half_hosts import slow_hosts
from steptax.app.compute.causes.joint_facts import (
    excess_when_slow,
    longer_ratio,
    lost_ratio,
    place_text,
    silent_ranks,
    span_ratio,
    together,
    window_of,
)
from steptax.app.compute.causes.model import CauseVerdict, Diagnosis, Finding, Scope
from steptax.app.compute.causes.sample import sample_of
from steptax.app.compute.causes.transfer import transfer_cause
from steptax.app.compute.stats.rows import Flags, Floats
from steptax.app.compute.straggler.arrival import arrivals
from steptax.app.compute.straggler.episodes import (
    crowded,
    excess_ratios,
    find_episodes,
    usual_step_us,
)
from steptax.app.compute.straggler.rank_episodes import RankEpisode, dated_span, told_until
from steptax.app.compute.straggler.recurring import first_told, usual_steps
from steptax.app.compute.straggler.result import Kind, StragglerResult
from steptax.app.compute.straggler.rules import (
    CAUSE_RULES,
    EPISODE_RULES,
    RECURRING_RULES,
    CauseRules,
    EpisodeRules,
)
from steptax.app.compute.straggler.spells import slow_in_most
from steptax.app.compute.straggler.steps import StepMatrix, without_inconsistent
from steptax.app.compute.straggler.tables import Used

#: Findings whose cause is looked into, costliest first.
MOST_FINDINGS = 24


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
    silent = silent_ranks(matrix, result.rules.stopped_lag_steps)
    columns = result.coverage.rank_places
    used = result.used
    if used is None:
        part = matrix.select(result.coverage.step_places, columns)
        used = Used.of(part, arrivals(part, result.basis), result.rules)
    return _Case(
        used,
        result,
        _selected(evidence, columns),
        columns,
        silent[columns],
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
    silent: Flags
    """Which of the used ranks have stopped reporting."""
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
        ranks = [*self._ranks(), *self._transfers()]
        job = job_findings(
            self.used, self.evidence.places, self.rules, self.cause_rules, self._told(ranks)
        )
        ranks = [f for f in ranks if not any(self._belongs(f, wide) for wide in job)]
        findings = [*ranks, *stage_finding(self.used, self.result), *job]
        if not any(f.scope in (Scope.RANKS, Scope.STAGE) for f in findings):
            # What slows all ranks by much is never quite the same on each of them.
            moving = moving_finding(self.used, self.result, self.cause_rules)
            findings += [f for f in moving if all(f.part != wide.part for wide in job)]
        findings = [replace(f, span_ratio=span_ratio(f, self.used)) for f in findings]
        findings.sort(key=lambda f: -(f.lost_ratio or 0.0))
        return Diagnosis(tuple(findings))

    def _told(self, found: list[Finding]) -> dict[str, frozenset[int]]:
        """By part of the step the positions of ranks that are slow in it, group or most of all."""
        told: dict[str, set[int]] = {}
        place = {int(rank): c for c, rank in enumerate(self.used.matrix.ranks)}
        for one in found:
            if one.part is not None:
                told.setdefault(one.part, set()).update(place[rank] for rank in one.ranks)
        if self.result.majority is not None:
            part, slow = majority_part(self.used, self.result.majority, self.cause_rules)
            if part is not None:
                told.setdefault(part, set()).update(slow)
        return {part: frozenset(columns) for part, columns in told.items()}

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

    def _with_hosts(self, joints: list[Joint], excess: Floats) -> list[Joint]:
        """``joints``, and hosts with half of the ranks in the place of what is a part of them."""
        args = self.used, excess, self.evidence.places, self.rules, self.cause_rules
        for host in slow_hosts(*args):
            mine = set(host.columns)
            parts = [
                j for j in joints if mine.issuperset(j.columns) and _meet(j, host) > 0.5 * j.steps
            ]
            if any(j.kinds and _meet(j, host) > 0.5 * host.steps for j in parts):
                continue
            joints = [host, *(j for j in joints if j not in parts)]
        return sorted(joints, key=lambda j: -j.excess_ratio * j.steps)

    def _ranks(self) -> list[Finding]:
        used = self.used
        excess = excess_ratios(used.arrived.work_us, used.arrived.step_us, used.matrix.stage)
        excess[~usual_steps(used.arrived.work_us, RECURRING_RULES)] = np.nan
        out = []
        episodes = self._for_good(excess, self._episodes(excess))
        joints = self._with_hosts(self._joints(episodes, excess), excess)
        jointly = together(joints, self.used)
        for joint in joints[:MOST_FINDINGS]:
            seen = sample_of(used.matrix, used.arrived, used.excess_us, joint)
            verdict, also, part = rank_cause(
                seen,
                joint,
                self.evidence.places,
                self.devices,
                window_of(joint, self.used, self.rules, self.cause_rules),
                used.rules,
                self.cause_rules,
            )
            found = self._finding(joint, part, verdict, also, lost_ratio(joint, self.used))
            out.append(replace(found, together=jointly.get(joint.columns)))
        return out

    def _for_good(self, excess: Floats, episodes: list[RankEpisode]) -> list[RankEpisode]:
        """The episodes, and those of ranks that the statistics of the whole window call slow.

        Among a few ranks that differ widely, or where half of them are slow, a slow one is not far
        outside of the noise; what is slow in most of the steps counts all the same. Of a rank that
        is slow again and again over the window, episodes would tell a part only, and so they may of
        one that is slow in bursts which are most of the steps.
        """
        verdict = self.result.verdict
        if verdict.kind is not Kind.WORKER or self.result.slow_links is not None:
            return episodes
        again = {
            int(np.flatnonzero(self.used.matrix.ranks == rank)[0]): found
            for rank, found in self.result.recurring.items()
        }
        partly = self._told_in_part(excess, episodes)
        out = [e for e in episodes if e.column not in again and e.column not in partly]
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
                newest = told_until(excess[:, c]) - 1
                is_open = last >= newest - self.rules.close_window_steps // 2
            else:
                one = replace(one, level=one.level / usual)
                first, last, is_open = one.first, one.last, True
            mean = float(np.nanmean(excess[first : last + 1, c]))
            often = 1.0 if one is None else one.duty_ratio
            out.append(RankEpisode(c, first, last, detected, mean, often, is_open, one))
        return out

    def _told_in_part(self, excess: Floats, episodes: list[RankEpisode]) -> set[int]:
        """Columns slow in most steps, of which episodes tell less than half of the excess."""
        table = self.result.ranks
        if table is None:
            return set()
        often = slow_in_most(table, self.used.step_us, self.used.rules)
        return {
            column
            for column in {e.column for e in episodes if often[e.column]}
            if sum(e.excess_ratio * e.steps for e in episodes if e.column == column)
            < self.rules.persistence_ratio * float(np.nansum(excess[:, column]))
        }

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
                window_of(joint, self.used, self.rules, self.cause_rules),
                self.cause_rules,
            )
            out.append(
                self._finding(joint, "transfer", verdict, also, longer_ratio(joint, self.used))
            )
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
        excess = excess_when_slow(joint)
        silent = joint.is_open and bool(self.silent[list(joint.columns)].all())
        return Finding(
            Scope.RANKS,
            place_text(joint, self.used, self.evidence.places, self.evidence.host_names),
            tuple(int(self.used.matrix.ranks[c]) for c in joint.columns),
            int(steps[joint.first]),
            int(steps[joint.last]),
            int(steps[joint.detected]),
            joint.is_open and not silent,
            excess * usual,
            excess,
            part,
            lost,
            verdict,
            also,
            in_steps=None if joint.again is None else (len(slow_places(joint)), joint.steps),
            is_silent=silent,
        )


def _meet(one: Joint, two: Joint) -> int:
    """Steps that both have."""
    return max(0, min(one.last, two.last) - max(one.first, two.first) + 1)
