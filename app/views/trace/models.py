"""What pages draw and commands print of the what-if analysis of a job. No logic here.

How to get them (``app/views/trace/view.py``): ``open_trace(ws, job_id, steps=...)`` reads and
analyses, is the slow part, knows no price, and is what a page caches by ``ws.version(job_id)``.
All else is made from what it returns: ``trace_view(job, price)``, ``trace_grid(job, step)``,
``trace_step(job, step, ...)``, ``rail_answer(job, fixes, price)``. A file without a lake is opened
by ``open_trace_file(path, meta)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steptax.app.compute.measure import Measure
from steptax.app.views.models import Price
from steptax.app.whatif.findings import Findings
from steptax.app.whatif.money import Recovered
from steptax.app.whatif.pattern import Pattern

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

GRAPH = "graph"
ESTIMATE = "estimate"


@dataclass(frozen=True)
class TraceBar:
    """One bar: the slowdown that remains with all but one thing ideal (1 = it costs nothing).

    ``key`` as ``--json`` has it (``forward-compute``, ``3``), ``label`` for the axis, ``title`` the
    whole sentence for the hover.
    """

    key: str
    label: str
    title: str
    measure: Measure


@dataclass(frozen=True)
class WorkerLine:
    """One worker, slowest first. ``host`` is None where no row of ``ranks`` names it.

    ``slowdown`` is the smaller of its data-parallel rank's and its stage's slowdown; in a per-rank
    estimate, its own work over its peers' median.
    """

    rank: int
    dp: int | None
    stage: int | None
    host: str | None
    slowdown: float
    highlighted: bool


@dataclass(frozen=True, eq=False)
class WorkerGrid:
    """Slowdown of each worker: stages down, data-parallel ranks across.

    ``slowdown`` [P, D], NaN where nobody is; ``ranks`` [P, D] with -1 there; ``dps`` [D] and
    ``stages`` [P] are labels. ``step`` is None for all steps together. Colours run from
    ``colour_low`` to ``colour_high`` (1 to 1.5 or more, the same for every step of a job, so that
    steps can be compared). ``highlighted`` [P, D] marks the cells of the pattern.
    """

    slowdown: FloatArray
    ranks: IntArray
    dps: IntArray
    stages: IntArray
    highlighted: npt.NDArray[np.bool_]
    step: int | None
    S: float
    """Slowdown of the step, or of all steps together."""
    colour_low: float
    colour_high: float
    text: str
    """One line below the figure."""


@dataclass(frozen=True, eq=False)
class StepSeries:
    """One entry for each analysed step [N]: its number, milliseconds, and slowdown.

    ``measured_ms`` as recorded, ``original_ms`` simulated without launch delays; the ideal is the
    same in each step.
    """

    steps: IntArray
    measured_ms: FloatArray
    original_ms: FloatArray
    ideal_ms: float
    S: FloatArray
    slowest_rank: IntArray
    """Worker with the largest slowdown in the step."""


@dataclass(frozen=True)
class RailParameter:
    """A value that a fix takes. ``kind``: ``number``, ``text``, ``choice`` or ``ranks``.

    ``choices`` are the values of a choice; ``low`` and ``high`` bound a number, both included.
    """

    name: str
    label: str
    kind: str
    default: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class RailFix:
    """One line of the what-if rail.

    ``template`` becomes what ``rail_answer`` takes once its parameters are filled in: ``fill()``
    with the defaults, ``fill(factor="3")`` otherwise. Without ``available`` the ``reason`` says
    what is missing. ``suggested`` marks what the pattern speaks for.
    """

    id: str
    title: str
    stands_for: str
    template: str
    parameters: tuple[RailParameter, ...] = ()
    available: bool = True
    reason: str | None = None
    suggested: bool = False

    def fill(self, **values: str) -> str:
        """The fix as text, e.g. ``kernel:*-compute:2``; what is not given has its default."""
        return self.template.format(
            **{p.name: values.get(p.name, p.default) for p in self.parameters}
        )


@dataclass(frozen=True)
class RailAnswer:
    """What any combination of fixes does, from one simulation of all of them together.

    ``step_after_ms`` and what is worth follow the interval of the simulation: over the steps,
    widened by the simulator's error. ``recovered`` has seconds per step, share, GPU-hours (per
    day) and USD (per day); values may be negative: the change makes the job slower. ``basis`` is
    ``graph`` or ``estimate``. ``fixes`` are the texts that were applied, in the order in which they
    were.
    """

    fixes: tuple[str, ...]
    titles: tuple[str, ...]
    text: str
    step_before_ms: Measure
    step_after_ms: Measure
    S_before: Measure
    S_after: Measure
    """Against the ideal of the changed job: a faster kernel makes the ideal faster as well."""
    speedup: Measure
    recovered: Recovered
    sim_error: Measure
    basis: str
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As every command prints it."""
        return {
            "fixes": list(self.fixes),
            "text": self.text,
            "step_before_ms": self.step_before_ms.as_json(),
            "step_after_ms": self.step_after_ms.as_json(),
            "S_before": self.S_before.as_json(),
            "S_after": self.S_after.as_json(),
            "speedup": self.speedup.as_json(),
            **self.recovered.as_json(),
            "sim_error": self.sim_error.as_json(),
            "basis": self.basis,
        }


@dataclass(frozen=True)
class CurvePoint:
    """The ``k`` slowest ranks repaired together; ``rank`` is the one added last."""

    k: int
    rank: int
    step_ms: Measure
    share: Measure
    """Of the step's time that comes back."""
    gpu_hours_per_day: Measure
    usd_per_day: Measure


@dataclass(frozen=True, eq=False)
class GanttBars:
    """N bars of one timeline, sorted by lane and start; times in ms from the step's begin.

    ``lane`` indexes ``StepGantt.lanes``, ``op_type`` indexes ``StepGantt.op_types``. ``wait_ms`` is
    the part at the start of a transfer that only waits for peers. ``micro_batch`` is -1 where none
    applies. ``merged`` counts the operations that a bar stands for: 1, or more where neighbours of
    one type were too close to be told apart; of those ``name`` says how many.
    """

    lane: IntArray
    start_ms: FloatArray
    end_ms: FloatArray
    wait_ms: FloatArray
    op_type: IntArray
    micro_batch: IntArray
    merged: IntArray
    name: tuple[str, ...]


@dataclass(frozen=True)
class GanttLane:
    """One row of the Gantt chart: a stream of a rank."""

    label: str
    rank: int
    dp: int
    stage: int
    stream: str
    """``compute``, ``forward-send``, ..., ``data-parallel``, ``tail``."""


@dataclass(frozen=True, eq=False)
class StepGantt:
    """One step as it was recorded, and as it would ideally have been; the lanes are the same.

    ``window_ms`` is what is shown, ``span_ms`` the whole step; asking again with a smaller window
    gives more detail. ``note`` says what was merged or left out, None when every operation of the
    window is there.
    """

    step: int
    lanes: tuple[GanttLane, ...]
    op_types: tuple[str, ...]
    original: GanttBars
    ideal: GanttBars
    original_ms: float
    ideal_ms: float
    window_ms: tuple[float, float]
    span_ms: float
    ranks_shown: int
    ranks_total: int
    note: str | None = None


@dataclass(frozen=True, eq=False)
class TraceView:
    """Everything that the what-if part of the job page and ``steptax whatif stragglers`` show.

    ``basis`` is ``graph``, or ``estimate`` where there is no dependency graph: then ``no_graph``
    says why, ``estimate`` has the slowdown from per-rank times, ``S`` and what follows from it are
    missing with that reason, and ``by_*``, ``steps`` and ``M_*`` are empty or missing, while
    ``workers``, ``heat``, ``worst_k`` and the fixes of ranks come from per-rank times where these
    tell. A missing measure always says why.
    """

    job_id: str
    basis: str
    sentence: str
    """The answer in words, complete."""
    reliable: bool
    doubts: tuple[str, ...]
    """Why there is no verdict, when ``reliable`` is false."""
    price: Price
    steps_note: str
    """Steps that the analysis rests on, for people."""
    S: Measure
    waste: Measure
    launch_slowdown: Measure
    M_W: Measure
    M_S: Measure
    sim_error: Measure
    step_ms: Measure
    """Mean step as measured."""
    ideal_step_ms: Measure
    recovered: Recovered
    """What comes back without stragglers: ``gpu_hours``, ``usd``, ``usd_per_day``, ..."""
    by_optype: tuple[TraceBar, ...]
    by_stage: tuple[TraceBar, ...]
    by_dp_rank: tuple[TraceBar, ...]
    """Bars: operation types by value falling, stages and data-parallel ranks by number (the
    slowest 64 of the latter, where there are more)."""
    bars_note: str | None
    workers: tuple[WorkerLine, ...]
    """The slowest 50."""
    worker_count: int
    heat: WorkerGrid | None
    """None where the place of a rank in the pipeline is not known, as in a profiler's trace."""
    steps: StepSeries | None
    pattern: Pattern
    fixes: tuple[RailFix, ...]
    worst_k: tuple[CurvePoint, ...]
    estimate: Measure
    no_graph: str | None
    findings: Findings
    warnings: tuple[str, ...]
    version: str
    """Changes when the rows may have changed; empty for a file."""
