"""Says on a terminal that long work is under way, and how far; nothing anywhere else.

It goes to stderr and is gone when the work is done, so that what is printed stays as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from steptax.app.views.far import heard_by

if TYPE_CHECKING:
    from rich.progress import Progress

Advance = Callable[[str], None]


@contextmanager
def working(text: str, total: int | None = None) -> Iterator[Advance]:
    """Show ``text`` while the block runs; gives ``advance(what)``, called before each part.

    With a ``total`` of parts there is a bar, without one a sign that turns; both with the time
    that went by. Inside of it nothing may be printed.
    """
    if not sys.stderr.isatty():
        yield _nothing
        return
    from steptax.app.printable import printable

    with _bar(counts=total is not None and total > 1) as bar:
        task = bar.add_task(printable(text), total=total)
        begun = 0

        def advance(what: str) -> None:
            nonlocal begun
            bar.update(task, description=printable(what), completed=begun)
            begun += 1

        yield advance


@contextmanager
def counting(text: str) -> Iterator[None]:
    """Show ``text`` and how many jobs are worked out while the block runs (see ``views.far``)."""
    if not sys.stderr.isatty():
        yield
        return
    with _bar(counts=True) as bar:
        task = bar.add_task(text, total=None)
        with heard_by(lambda far: bar.update(task, completed=far.done, total=far.total)):
            yield


def _bar(*, counts: bool) -> Progress:
    """On stderr, gone when it is done; with ``counts`` it says how much of how much."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns: list[ProgressColumn] = [
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
    ]
    if counts:
        columns += [BarColumn(), MofNCompleteColumn()]
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)


def _nothing(_: str) -> None:
    return
