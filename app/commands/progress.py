"""Says on a terminal that long work is under way, and how far; nothing anywhere else.

It goes to stderr and is gone when the work is done, so that what is printed stays as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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

    from steptax.app.printable import printable

    columns: list[ProgressColumn] = [
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
    ]
    if total is not None and total > 1:
        columns += [BarColumn(), MofNCompleteColumn()]
    bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    with bar:
        task = bar.add_task(printable(text), total=total)
        begun = 0

        def advance(what: str) -> None:
            nonlocal begun
            bar.update(task, description=printable(what), completed=begun)
            begun += 1

        yield advance


def _nothing(_: str) -> None:
    return
