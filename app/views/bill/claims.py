"""Whom the charges of a bill name: hosts by their resources, jobs and teams by their tags."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.charge_groups import UNSTATED
from steptax.app.compute.bill.holders import Held, Placement
from steptax.app.compute.bill.waterfall_rows import Labels
from steptax.app.views.bill.rules import LABELS, BillRules


class Claims:
    """Texts of a bill as what the jobs of a lake are called."""

    def __init__(
        self,
        rules: BillRules,
        hosts: set[str],
        jobs: frozenset[str],
        labels: Callable[[], Iterable[Labels]],
    ) -> None:
        self._rules = rules
        self._hosts = hosts
        self._jobs = jobs
        self._labels_of = labels
        #: Jobs by the label that tags named, as far as ``tagged`` was asked.
        self.labels: dict[str, tuple[str, ...]] = {}

    @cached_property
    def _folded(self) -> dict[str, str]:
        return {job.casefold(): job for job in sorted(self._jobs)}

    @cached_property
    def _labels(self) -> dict[str, dict[str, str]]:
        return {
            str(one.job_id): {
                name: str(value).casefold()
                for name in LABELS
                if (value := getattr(one, name)) is not None
            }
            for one in self._labels_of()
        }

    def host(self, resource: str) -> str | None:
        """The host that a resource is: told, its very name, or what stands behind a path."""
        return next(
            (name for name in host_names(self._rules, resource) if name in self._hosts), None
        )

    def tagged(self, tags: str) -> tuple[str | None, str | None]:
        """The job that tags name, and the label that some jobs have; None where there is none."""
        job, labels = self._rules.claim(tags)
        if job is not None:
            job = job if job in self._jobs else self._folded.get(job.casefold())
        if not labels:
            return job, None
        label = ", ".join(f"{name} {value}" for name, value in labels.items())
        if label not in self.labels:
            wanted = {name: value.casefold() for name, value in labels.items()}
            self.labels[label] = tuple(
                name for name, own in sorted(self._labels.items()) if wanted.items() <= own.items()
            )
        return job, label if self.labels[label] else None


def host_names(rules: BillRules, resource: str) -> list[str]:
    """What the host of a resource may be called, best first."""
    last = resource.rstrip("/").rsplit("/", 1)[-1]
    names = (rules.resources.get(resource), rules.resources.get(last), resource, last)
    return [name for name in names if name is not None]


def label_placements(bills: Sequence[Held], labels: Mapping[str, Sequence[str]]) -> list[Placement]:
    """What the jobs of each label held, as if the label were a resource."""
    by_job = {str(bill.labels.job_id): bill for bill in bills}
    found = []
    for label, jobs in labels.items():
        for job in jobs:
            line = by_job[job].timeline if job in by_job else None
            if line is None:
                continue
            for k in np.flatnonzero(line.state != State.UNALLOCATED):
                span = int(line.start_us[k]), int(line.end_us[k])
                found.append(Placement(job, label, *span, Fraction(int(line.gpus[k]))))
    return found


def rates_text(rules: BillRules, currencies: Sequence[str | None]) -> str:
    """How much of which currency was converted; empty where nothing was."""
    there = {name or UNSTATED for name in currencies} - {rules.currency}
    used = [name for name in sorted(rules.rates) if name in there]
    if not used:
        return ""
    said = ", ".join(f"1 {name} = {float(rules.rates[name]):g} {rules.currency}" for name in used)
    return f", converted at the stated rate {said}"
