"""Running cases on all devices at once, repeat after repeat."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from steptax.app.errors import UserError
from steptax.benchmarks.hardware.backend import Backend, UnsupportedError, Work
from steptax.benchmarks.hardware.case import Case
from steptax.benchmarks.hardware.free_memory import is_out_of_memory
from steptax.benchmarks.hardware.telemetry import Telemetry, Window
from steptax.benchmarks.hardware.timing import Plan, Spread, one_repeat_us, spread_of


@dataclass(frozen=True)
class Result:
    """One case on one device."""

    case: Case
    backend: Backend
    spread: Spread
    window: Window


@dataclass(frozen=True)
class Outcome:
    """What was measured, and what could not be, with the reason."""

    results: list[Result]
    notes: list[str]


def run_cases(
    backends: Sequence[Backend],
    cases: Sequence[Case],
    plan: Plan,
    telemetry: Telemetry,
    say: Callable[[str], None] = lambda _text: None,
) -> Outcome:
    """Every case on every device, all devices at once; ``say`` is told how far it is."""
    values: dict[tuple[int, int], list[list[float]]] = defaultdict(list)
    spans: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    notes: dict[str, None] = {}
    gone = _too_large(backends, cases, notes)
    for repeat in range(plan.repeats):
        for number, case in enumerate(cases):
            say(f"repeat {repeat + 1} of {plan.repeats}: {case.test} {case.size} {case.dtype}")
            ready: list[tuple[int, Work]] = []
            for place, backend in enumerate(backends):
                if (place, number) in gone:
                    continue
                try:
                    ready.append((place, case.prepare(backend, 1000 * repeat + place)))
                except UnsupportedError as why:
                    gone.add((place, number))
                    if str(why):
                        notes.setdefault(f"{case.test} {case.dtype}: {why}")
                except (MemoryError, RuntimeError) as error:
                    if not is_out_of_memory(error):
                        raise
                    gone.add((place, number))
                    notes.setdefault(_no_room(case, backend))
            groups = [[one] for one in ready] if case.alone else [ready]
            for group in filter(None, groups):
                began = time.time_ns() // 1000
                try:
                    timed = _together(backends, case, plan, group)
                except (MemoryError, RuntimeError) as error:
                    if not is_out_of_memory(error):
                        raise
                    gone.update((place, number) for place, _ in group)
                    notes.setdefault(_no_room(case, backends[group[0][0]]))
                    continue
                for place, found in timed:
                    values[place, number].append([case.value(us) for us in found])
                    spans[place, number].append((began, time.time_ns() // 1000))
    results = [
        Result(
            cases[number],
            backends[place],
            spread_of(found),
            telemetry.window(backends[place].device_id, spans[place, number]),
        )
        for (place, number), found in sorted(values.items(), key=lambda kv: (kv[0][1], kv[0][0]))
    ]
    return Outcome(results, list(notes))


def _too_large(
    backends: Sequence[Backend], cases: Sequence[Case], notes: dict[str, None]
) -> set[tuple[int, int]]:
    """Device and case that cannot fit, told in ``notes``, before any memory is taken.

    A system that lends more memory than it has would end this process instead of refusing.
    """
    gone = set()
    for place, backend in enumerate(backends):
        free = backend.free_bytes()
        for number, case in enumerate(cases):
            if free is not None and case.needs_bytes > free:
                gone.add((place, number))
                notes.setdefault(_no_room(case, backend))
    return gone


def _no_room(case: Case, backend: Backend) -> str:
    """The note on a case that does not fit; UserError where a flag asked for it."""
    free = backend.free_bytes()
    left = "free memory is not known" if free is None else f"{free / 1e9:,.1f} GB are free"
    needs = f", it needs {case.needs_bytes / 1e9:,.1f} GB or more" if case.needs_bytes else ""
    text = (
        f"{case.test} {case.size} {case.dtype}: out of memory on {backend.device_id}{needs}, {left}"
    )
    if case.flag is not None:
        raise UserError(
            text,
            where=case.flag,
            hint=f"a smaller {case.flag}, or none: the usual sizes suit the device",
        )
    return text


def _together(
    backends: Sequence[Backend], case: Case, plan: Plan, group: list[tuple[int, Work]]
) -> list[tuple[int, list[float]]]:
    """Time one repeat on each device of ``group``, beginning at the same moment."""
    gate = threading.Barrier(len(group))

    def one(place: int, work: Work) -> tuple[int, list[float]]:
        backend = backends[place]
        gate.wait()
        if case.wall_calls:
            backend.wall_us(work, max(1, case.wall_calls // 10))
            times = max(5, min(plan.iterations, 20))
            return place, [backend.wall_us(work, case.wall_calls) for _ in range(times)]
        return place, one_repeat_us(backend, work, plan)

    if len(group) == 1:
        return [one(*group[0])]
    with ThreadPoolExecutor(len(group)) as pool:
        return [future.result() for future in [pool.submit(one, *item) for item in group]]


def slowest(results: Sequence[Result]) -> list[Result]:
    """Of each case the device with the worst figure: that is what a synchronous job gets."""
    by_case: dict[int, list[Result]] = defaultdict(list)
    for result in results:
        by_case[id(result.case)].append(result)
    worst = []
    for group in by_case.values():
        higher_is_better = group[0].case.unit != "us"
        pick = min if higher_is_better else max
        worst.append(pick(group, key=lambda r: r.spread.value))
    return worst
