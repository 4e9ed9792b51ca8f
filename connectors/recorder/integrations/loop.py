"""Wrappers for loops that people write themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from steptax.connectors.recorder.recorder import StepRecorder

Item = TypeVar("Item")


def recorded_steps(
    rec: StepRecorder, batches: Iterable[Item], first_step: int = 0
) -> Iterator[tuple[int, Item]]:
    """Step number and batch, each turn of the loop a step, the wait for its batch ``input``.

        for step, batch in recorded_steps(rec, loader):
            with rec.phase("compute"):
                ...

    The step that is left by ``break`` or an exception is not recorded.
    """
    source = iter(batches)
    step = first_step
    while True:
        try:
            with rec.step(step):  # left by the end of the batches, it is abandoned
                with rec.phase("input"):
                    batch = next(source)
                yield step, batch
        except StopIteration:
            return
        step += 1


def recorded_iterator(rec: StepRecorder, batches: Iterable[Item]) -> Iterator[Item]:
    """The same batches; the wait for each is ``input`` of the step that is open."""
    source = iter(batches)
    while True:
        with rec.phase("input"):
            try:
                batch = next(source)
            except StopIteration:
                return
        yield batch


def recorded_calls(
    rec: StepRecorder, function: Callable[..., Any], phase: str | None = None
) -> Callable[..., Any]:
    """``function`` with its time taken as ``phase``; as a collective without one."""

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with rec.collective() if phase is None else rec.phase(phase):
            return function(*args, **kwargs)

    return timed
