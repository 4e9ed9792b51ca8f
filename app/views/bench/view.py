"""View models of hardware benchmarks: a run against another, and the acceptance of nodes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steptax.app.compute.bench.acceptance import Acceptance, accept
from steptax.app.compute.bench.bases import Figure
from steptax.app.compute.bench.compare import P_MOST, Comparison, Status, compare, worst
from steptax.app.errors import NotFoundError
from steptax.app.format import UNKNOWN
from steptax.app.views.workspace import Workspace

#: From this size on a collective is told by its bandwidth, below by its time.
_LARGE_BYTES = 1 << 20
#: From so many figures on some differ by chance.
_MANY = 10
#: Errors of a device before the run that still count against it.
_XID_WINDOW_US = 24 * 3600 * 1_000_000


@dataclass(frozen=True)
class ComparedFigure:
    """A figure of run A with the same of run B."""

    figure: Figure
    base: Figure
    comparison: Comparison


@dataclass(frozen=True)
class RunComparison:
    """Run A against run B, in both directions."""

    run: str
    base: str
    compared: tuple[ComparedFigure, ...]
    only_here: int
    only_there: int
    sentence: str
    differences: tuple[str, ...] = ()
    """What the runs do not have in common: hosts, devices, libraries, backends."""

    @property
    def differing(self) -> tuple[ComparedFigure, ...]:
        """Those whose gap is more than noise."""
        return tuple(c for c in self.compared if c.comparison.differs)

    @property
    def judged(self) -> tuple[ComparedFigure, ...]:
        """Those with repeats enough to tell a gap from noise."""
        return tuple(c for c in self.compared if c.comparison.unjudged is None)


def load_figures(ws: Workspace) -> list[Figure]:
    """Every figure of a device or of all ranks; of a collective one for each size."""
    rows = ws.engine.run("bench_figures").to_pylist()
    return sorted((_figure(row) for row in rows if _is_headline(row)), key=_order)


def _order(figure: Figure) -> tuple[object, ...]:
    size = figure.size
    number = int(size) if size.isdecimal() else 0
    return figure.run_id, figure.where, figure.test, figure.dtype, number, size


def _is_headline(row: dict[str, Any]) -> bool:
    """Time, algbw and busbw of a collective are one measurement, so one of them is taken."""
    name, _, metric = row["test"].replace(" in place", "").rpartition(" ")
    if metric not in ("time", "algbw", "busbw") or not name or not row["size"].isdecimal():
        return True
    return bool(metric == ("busbw" if int(row["size"]) >= _LARGE_BYTES else "time"))


def _figure(row: dict[str, Any]) -> Figure:
    repeats = json.loads(row["repeats"]) if row["repeats"] else [row["value"]]
    software = _software(row["software"])
    return Figure(
        row["run_id"],
        row["host"],
        row["gpu_uuid"],
        row["gpu_model"],
        row["test"],
        row["size"],
        row["dtype"],
        row["unit"] or "",
        tuple(float(v) for v in repeats),
        row["measured_at_us"],
        row["ranks"],
        row["nodes"],
        software.get("library"),
        software.get("backend"),
    )


def _software(text: str | None) -> dict[str, str]:
    """Names and versions of a row; a text of another source that is no JSON object says none."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return {k: str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def run_ids(figures: Sequence[Figure]) -> list[str]:
    """Runs, the newest first."""
    newest: dict[str, int] = {}
    for figure in figures:
        newest[figure.run_id] = max(newest.get(figure.run_id, 0), figure.measured_at_us)
    return sorted(newest, key=lambda run: (-newest[run], run))


def _of_run(figures: Sequence[Figure], run: str) -> list[Figure]:
    found = [f for f in figures if f.run_id == run]
    if not found:
        known = run_ids(figures)
        raise NotFoundError(
            f"there is no benchmark run {run!r} in this lake",
            where="RUN",
            hint=f"the newest: {', '.join(known[:5])}" if known else "run one: steptax bench gemm",
        )
    return found


def compare_runs(ws: Workspace, run: str, base: str) -> RunComparison:
    """Every figure of ``run`` that ``base`` has too; NotFoundError where a run is not there.

    Devices are matched by host and device, and where the runs share none, by their order, so that
    two nodes can be held against each other.
    """
    figures = load_figures(ws)
    here, there = _of_run(figures, run), _of_run(figures, base)
    shared = {f.where for f in here} & {f.where for f in there}
    keys_here, keys_there = _keyed(here, by_place=not shared), _keyed(there, by_place=not shared)
    both = [key for key in keys_here if key in keys_there]
    compared = tuple(
        ComparedFigure(
            keys_here[key],
            keys_there[key],
            compare(keys_here[key].repeats, keys_there[key].repeats, keys_here[key].unit),
        )
        for key in both
    )
    pairs = [(c.figure, c.base) for c in compared] or [(f, t) for f in here for t in there]
    differences = _differences(pairs)
    if not shared:
        text = "the runs share no host and device: devices were matched by their order"
        differences = (text, *differences)
    return RunComparison(
        run,
        base,
        compared,
        len(here) - len(both),
        len(there) - len(both),
        _comparison_sentence(compared),
        differences,
    )


def _comparison_sentence(compared: Sequence[ComparedFigure]) -> str:
    """The headline: what could be judged apart from what could not."""
    if not compared:
        return "the runs have no figure in common"
    why = Counter(c.comparison.unjudged for c in compared if c.comparison.unjudged is not None)
    left_out = why.total()
    parts = []
    if judged := len(compared) - left_out:
        parts.append(_judged_sentence([c for c in compared if c.comparison.unjudged is None]))
    if left_out:
        reasons = ", ".join(w if len(why) == 1 else f"{w} ({n})" for w, n in why.most_common())
        parts.append(f"{left_out} of {judged + left_out} cannot be judged: {reasons}")
    return "; ".join(parts)


def _judged_sentence(judged: Sequence[ComparedFigure]) -> str:
    differing = [c for c in judged if c.comparison.differs]
    if not differing:
        return f"no difference beyond noise in {len(judged)} figures"
    worse = sum((c.comparison.gap.value or 0) > 0 for c in differing)
    sentence = (
        f"{len(differing)} of {len(judged)} figures differ beyond noise: {worse} worse, "
        f"{len(differing) - worse} better"
    )
    if len(judged) >= _MANY:
        # p <= 0.05 in either direction, though the gap must also exceed its noise.
        sentence += f" (up to about {round(2 * P_MOST * len(judged))} would by chance alone)"
    return sentence


_TOLD = 3
#: What a reader must know before a gap is laid to the state of a device.
_SAME = (("devices", "device_model"), ("libraries", "library"), ("backends", "backend"))


def _differences(pairs: Sequence[tuple[Figure, Figure]]) -> tuple[str, ...]:
    """A line for each of devices, libraries and backends that differ in a pair of figures."""
    lines = []
    for name, field in _SAME:
        found = dict.fromkeys((getattr(a, field), getattr(b, field)) for a, b in pairs)
        unlike = [(a, b) for a, b in found if a != b]
        if unlike:
            told = [f"{a or UNKNOWN} here, {b or UNKNOWN} there" for a, b in unlike[:_TOLD]]
            more = [f"and {len(unlike) - _TOLD} more pairs"] if len(unlike) > _TOLD else []
            lines.append(f"{name} differ: {'; '.join(told + more)}")
    return tuple(lines)


def _keyed(figures: Sequence[Figure], *, by_place: bool) -> dict[tuple[Any, ...], Figure]:
    places = sorted({f.where for f in figures})
    if by_place:
        return {(places.index(f.where), *f.what): f for f in figures}
    return {(f.where, *f.what): f for f in figures}


@dataclass(frozen=True)
class AcceptanceView:
    """A run with the verdict on each of its nodes."""

    run: str
    status: Status
    nodes: tuple[Acceptance, ...]


def acceptance_view(ws: Workspace, run: str, baseline: str | None = None) -> AcceptanceView:
    """Judge every node of ``run``; ``baseline`` names the run that it is held against first."""
    history = load_figures(ws)
    figures = _of_run(history, run)
    if baseline is not None:
        _of_run(history, baseline)
    since_us = min(f.measured_at_us for f in figures) - _XID_WINDOW_US
    xids = ws.engine.run("bench_xids", since_us=since_us).to_pylist()
    nodes = tuple(
        accept(
            host,
            [f for f in figures if f.host == host],
            history,
            [(x["gpu_uuid"], x["xid"]) for x in xids if x["host"] == host],
            baseline,
        )
        for host in sorted({f.host for f in figures})
    )
    return AcceptanceView(run, worst([n.status for n in nodes]), nodes)
