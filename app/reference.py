"""Published figures on stragglers and failures, each with the cluster that it comes from.

A figure is ``primary`` when it was read in the publication itself, ``second-hand`` when another
source quotes it. What follows from a figure is computed by the calculators when it is asked for,
with the command that gives the same; it is never typed in.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from steptax.app.compute.calculators.registry import CALCULATORS
from steptax.app.compute.measure import Measure
from steptax.app.format import format_value

Mark = Literal["primary", "second-hand"]


@dataclass(frozen=True)
class Study:
    """A publication and the systems that it looked at."""

    key: str
    name: str
    who: str
    cluster: str
    scope: str
    citation: str
    is_straggler_study: bool = False


@dataclass(frozen=True)
class Computed:
    """What follows from a figure: ``text`` says it, ``command`` gives the same in a terminal."""

    text: str
    command: str


@dataclass(frozen=True)
class Misquote:
    """How a figure is often repeated, and what is right."""

    said: str
    right: str


@dataclass(frozen=True)
class ReferenceFigure:
    """One published figure. ``scope`` says of what it holds; beyond that it says nothing."""

    study: str
    figure: str
    value: str
    scope: str
    where: str = ""
    """Section or table, where a reader should look there."""
    mark: Mark = "primary"
    misquotes: tuple[Misquote, ...] = ()
    follows: tuple[Computed, ...] = ()


STUDIES = (
    Study(
        "lin2025",
        "What-if analysis of stragglers (OSDI'25)",
        "New York University, ByteDance Seed, ByteDance, Zhejiang University",
        "dedicated training cluster, over-provisioned network",
        "3,079 pre-training jobs of at least 128 GPUs, January to May 2024; the analysis covers "
        "38.2 % of the jobs and 56.4 % of the GPU-hours",
        "Lin et al., OSDI'25, arXiv:2505.05713",
        is_straggler_study=True,
    ),
    Study(
        "wu2024",
        "FALCON, published as GREYHOUND (ATC'25)",
        "HKUST, Alibaba",
        "shared cluster of many tenants, more than 10,000 GPUs, RoCE of at most 400 Gb/s",
        "392 probes on one node, 107 probes on four nodes, and 27 jobs of 512 to 1,024 GPUs of "
        "July 2024, inspected by hand",
        "Wu et al., arXiv:2410.12588; USENIX ATC'25",
        is_straggler_study=True,
    ),
    Study(
        "llama3",
        "The Llama 3 herd of models",
        "Meta",
        "one training run on up to 16,384 H100 of one cluster",
        "a 54-day snapshot of pre-training",
        "Llama Team, arXiv:2407.21783, section 3.3",
    ),
    Study(
        "byterobust",
        "ByteRobust (SOSP'25)",
        "The University of Hong Kong, ByteDance Seed",
        "production clusters of one company",
        "778,135 training jobs of three months; one job on 9,600 GPUs",
        "ByteRobust, SOSP'25, arXiv:2509.16293",
    ),
    Study(
        "stragglar",
        "StragglAR",
        "Cornell University",
        "one server of 8 GPUs; larger sizes simulated",
        "the all-reduce alone, with one rank that is late",
        "Devraj et al. 2025, arXiv:2505.23523",
    ),
)


def studies() -> dict[str, Study]:
    """All studies by key."""
    return {study.key: study for study in STUDIES}


def computed(
    calculator: str, read: str | Callable[[dict[str, Measure]], str], template: str, **inputs: Any
) -> Computed:
    """What ``calculator`` says for ``inputs``: the measure ``read``, put into ``template``.

    ``read`` may also be a function from all measures to a text.
    """
    measures = CALCULATORS[calculator].run(inputs).measures()
    if callable(read):
        said = read(measures)
    else:
        said = format_value(measures[read].value, measures[read].unit)
    words = ["steptax", "calc", calculator]
    for name, value in inputs.items():
        words += [f"--{name.replace('_', '-')}", f"{value}"]
    return Computed(template.format(said), shlex.join(words))
