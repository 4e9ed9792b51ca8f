"""The typed objects of the What-if page. They hold no logic."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from steptax.app.compute.calculators.base import Swing
from steptax.app.compute.measure import Measure
from steptax.app.compute.traps import Trap

Value = float | str | tuple[float, ...]
"""What an input can hold: a number, a word, or a list of numbers."""


@dataclass(frozen=True)
class Numbers:
    """A list that a job gives, or why it does not."""

    values: tuple[float, ...] | None
    unit: str
    reason: str | None = None


@dataclass(frozen=True)
class Word:
    """A name that a job gives, or why it does not."""

    text: str | None
    reason: str | None = None


Known = Measure | Numbers | Word
"""What a job says of one input."""


class Origin(StrEnum):
    """Where the value of an input came from."""

    MEASURED = "measured"
    TYPED = "typed"
    PRICE = "price"
    EXAMPLE = "example"
    DEFAULT = "default"
    NONE = "none"


@dataclass(frozen=True)
class InputField:
    """One input of a calculator as a person meets it, and what it holds at the moment.

    ``is_main``: needed for an answer, or filled; the others can be left alone.
    """

    name: str
    label: str
    unit: str
    help: str
    kind: str
    choices: tuple[str, ...]
    required: bool
    is_main: bool
    value: Value | None
    text: str
    """The value as it is shown in an empty field; empty when there is none."""
    origin: Origin
    origin_text: str
    """For people, e.g. ``measured: job demo-1, last 500 steps`` or why it is not known."""
    measure: Measure | None = None
    """The measurement, with its interval, where it is one."""


@dataclass(frozen=True)
class Line:
    """One line of a curve; ``low`` and ``high`` where it has a band. None: no answer there."""

    name: str
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] | None = None
    high: tuple[float | None, ...] | None = None


@dataclass(frozen=True)
class Curve:
    """Values over one input, with the point that the answer stands at."""

    key: str
    title: str
    x_title: str
    x: tuple[float, ...]
    y_title: str
    y_unit: str
    lines: tuple[Line, ...]
    x_is_log: bool = False
    marker: tuple[float, float] | None = None
    ceiling: Measure | None = None
    note: str | None = None


@dataclass(frozen=True)
class CompositionBar:
    """A step cut into its parts, in the order of ``Composition.parts``."""

    label: str
    values_ms: tuple[float, ...]

    @property
    def total_ms(self) -> float:
        """The whole step."""
        return sum(self.values_ms)


@dataclass(frozen=True)
class Composition:
    """The same step before and after, in parts that add up to it."""

    parts: tuple[str, ...]
    bars: tuple[CompositionBar, ...]


@dataclass(frozen=True)
class NamedMeasure:
    """A measure of a result under the name that a command prints, with a title for people."""

    name: str
    title: str
    measure: Measure


@dataclass(frozen=True)
class Repair:
    """These ranks like their peers in each step: ``share`` of the paid time comes back."""

    ranks: tuple[int, ...]
    share: Measure
    gpu_hours_per_day: Measure


@dataclass(frozen=True)
class StepByStep:
    """What the steps of a job say where a calculator takes the mean of each rank.

    ``recovered_ratio`` of the GPU time comes back once ``ranks`` are like their peers; ``text``
    says it in words.
    """

    ranks: tuple[int, ...]
    recovered_ratio: Measure
    recovered_usd_per_day: Measure
    text: str


@dataclass(frozen=True)
class Answer:
    """What a calculator says; the headline's band comes first."""

    headline: NamedMeasure
    band: str | None
    """Both ends of the headline, e.g. ``1.00× to 4.75×``; None where it is one value."""
    band_note: str
    """What the band spans, where that is not said by the warnings."""
    sentence: str
    measures: tuple[NamedMeasure, ...]
    swings: tuple[Swing, ...]
    """Widest first; those that move the headline."""
    swing_labels: dict[str, str]
    composition: Composition | None
    curves: tuple[Curve, ...]
    step_by_step: StepByStep | None = None
    """The same as the job's steps have it, where the calculator takes means over them."""


@dataclass(frozen=True)
class WhatIfView:
    """One calculator with its inputs and, when they suffice, its answer."""

    name: str
    title: str
    about: str
    formula: str
    source: str
    fields: tuple[InputField, ...]
    missing: tuple[InputField, ...]
    """Inputs that are needed and that nothing fills; there is no answer then."""
    answer: Answer | None
    warnings: tuple[str, ...]
    traps: tuple[Trap, ...]
    command: str
    """The line of a terminal that gives the same numbers."""
    typed: dict[str, str]
    """What a person typed, as a link carries it."""
