"""One way to print: text for people, one JSON object for programs, one shape for errors."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
from rich.console import Console
from rich.table import Table as RichTable
from typer.exceptions import TyperException

from steptax.app.errors import SteptaxError, UserError, disk_error
from steptax.app.printable import printable

EXIT_USER = 2
EXIT_OURS = 1
#: The command did its work, and what it judged is refused (``bench accept``).
EXIT_REJECT = 3
MAX_WIDTH = 240


class PlainConsole(Console):
    """Prints text as it is: names of jobs and hosts are neither markup nor orders to a terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print with every control character shown as a replacement character."""
        super().print(*(printable(o) if isinstance(o, str) else o for o in objects), **options)


console = PlainConsole(soft_wrap=True)


def _default(value: Any) -> Any:
    """What JSON has no word for; a Decimal keeps its digits, as a number."""
    if hasattr(value, "as_json"):
        return value.as_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot print {type(value).__name__}")


def print_json(body: dict[str, Any]) -> None:
    """Print one JSON object and nothing else."""
    # Passed through, since orjson would take a measure apart instead of asking it.
    options = (
        orjson.OPT_INDENT_2
        | orjson.OPT_SERIALIZE_NUMPY
        | orjson.OPT_NON_STR_KEYS
        | orjson.OPT_PASSTHROUGH_DATACLASS
    )
    sys.stdout.write(orjson.dumps(body, default=_default, option=options).decode() + "\n")
    sys.stdout.flush()


def print_json_rows(name: str, rows: Iterable[Any]) -> None:
    """Print ``{"ok": true, "data": {name: [...]}, "warnings": []}``, a row on each line.

    Rows that come one by one are printed so: millions of them never lie in memory as text.
    """
    write = sys.stdout.write
    write(f'{{"ok": true, "data": {{{orjson.dumps(name).decode()}: [')
    between = "\n"
    for row in rows:
        option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
        write(between + orjson.dumps(row, default=_default, option=option).decode())
        between = ",\n"
    write('\n]}, "warnings": []}\n')
    sys.stdout.flush()


def show(
    data: Any,
    *,
    as_json: bool,
    text: Callable[[], None],
    warnings: Sequence[str] = (),
) -> None:
    """Print ``data`` as JSON, or call ``text`` to print it for people."""
    if as_json:
        print_json({"ok": True, "data": data, "warnings": list(warnings)})
        return
    text()
    for warning in warnings:
        print_note(warning)


def print_note(text: str) -> None:
    """One remark beside a result."""
    console.print("note:", style="yellow", end=" ")
    console.print(text)


def print_error(
    kind: str, message: str, *, where: str | None, hint: str | None, as_json: bool
) -> None:
    """Print an error in its one shape."""
    if as_json:
        error = {"kind": kind, "message": message, "where": where, "hint": hint}
        print_json({"ok": False, "error": error})
        return
    sys.stderr.write(printable(f"steptax: {f'{where}: ' if where else ''}{message}\n"))
    if hint:
        sys.stderr.write(printable(f"  what to do: {hint}\n"))


def exit_code_of(error: BaseException, *, as_json: bool) -> int:
    """Print ``error``; 2 for a user's mistake, 1 for ours."""
    if isinstance(error, SteptaxError):
        print_error(error.kind, error.message, where=error.where, hint=error.hint, as_json=as_json)
        return EXIT_USER if isinstance(error, UserError) else EXIT_OURS
    if isinstance(error, TyperException):
        hint = "steptax --help lists the commands, steptax COMMAND --help their flags"
        context = getattr(error, "ctx", None)
        if context is not None and context.parent is not None:
            usage = " ".join(context.get_usage().split())
            hint = f"{usage}; {context.command_path} --help explains each"
        print_error("UsageError", error.format_message(), where=None, hint=hint, as_json=as_json)
        return EXIT_USER
    if isinstance(error, OSError) and (full := disk_error(error)):
        return exit_code_of(full, as_json=as_json)
    if isinstance(error, OSError) and error.filename is not None:
        reason = error.strerror or type(error).__name__
        hint = "name a path that exists and can be read, or for a lake written"
        print_error("InputError", reason, where=str(error.filename), hint=hint, as_json=as_json)
        return EXIT_USER
    hint = "a fault of Steptax: please report it with the command; STEPTAX_DEBUG=1 shows where"
    print_error(type(error).__name__, str(error), where=None, hint=hint, as_json=as_json)
    return EXIT_OURS


def print_wide(table: RichTable) -> None:
    """At its own width: a terminal that is narrower breaks lines, never numbers."""
    PlainConsole(width=MAX_WIDTH).print(table)


#: Words of up to so many characters are not broken to make a table narrower.
_UNBROKEN = 13


def table_of(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RichTable:
    """A plain table for a terminal."""
    out = RichTable(title=printable(title), title_justify="left", box=None, pad_edge=False)
    for index, name in enumerate(columns):
        words = [*name.split(), *(w for row in rows for w in row[index].split())]
        longest_word = max((len(w) for w in words if len(w) <= _UNBROKEN), default=0)
        # What a line is about stays in one piece: an id that is cut short cannot be copied.
        out.add_column(name, overflow="fold", no_wrap=index == 0, min_width=longest_word)
    for row in rows:
        out.add_row(*map(printable, row))
    return out
