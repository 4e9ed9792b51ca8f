"""One way to print: text for people, one JSON object for programs, one shape for errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
from rich.console import Console
from rich.table import Table as RichTable
from typer.exceptions import TyperException

from steptax.app.errors import SteptaxError, UserError

EXIT_USER = 2
EXIT_OURS = 1

console = Console(highlight=False, soft_wrap=True)


def _default(value: Any) -> Any:
    """What JSON has no word for; a Decimal keeps its digits, as a number."""
    if hasattr(value, "as_json"):
        return value.as_json()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot print {type(value).__name__}")


def print_json(body: dict[str, Any]) -> None:
    """Print one JSON object and nothing else."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    sys.stdout.write(orjson.dumps(body, default=_default, option=options).decode() + "\n")
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
        console.print(f"[yellow]note:[/yellow] {warning}")


def print_error(
    kind: str, message: str, *, where: str | None, hint: str | None, as_json: bool
) -> None:
    """Print an error in its one shape."""
    if as_json:
        error = {"kind": kind, "message": message, "where": where, "hint": hint}
        print_json({"ok": False, "error": error})
        return
    sys.stderr.write(f"steptax: {f'{where}: ' if where else ''}{message}\n")
    if hint:
        sys.stderr.write(f"  what to do: {hint}\n")


def exit_code_of(error: BaseException, *, as_json: bool) -> int:
    """Print ``error``; 2 for a user's mistake, 1 for ours."""
    if isinstance(error, SteptaxError):
        print_error(error.kind, error.message, where=error.where, hint=error.hint, as_json=as_json)
        return EXIT_USER if isinstance(error, UserError) else EXIT_OURS
    if isinstance(error, TyperException):
        hint = "steptax --help lists the commands, steptax COMMAND --help their flags"
        print_error("UsageError", error.format_message(), where=None, hint=hint, as_json=as_json)
        return EXIT_USER
    if isinstance(error, OSError) and error.filename is not None:
        reason = error.strerror or type(error).__name__
        hint = "name a path that exists and can be read, or for a lake written"
        print_error("InputError", reason, where=str(error.filename), hint=hint, as_json=as_json)
        return EXIT_USER
    hint = "a fault of Steptax: please report it with the command; STEPTAX_DEBUG=1 shows where"
    print_error(type(error).__name__, str(error), where=None, hint=hint, as_json=as_json)
    return EXIT_OURS


def table_of(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RichTable:
    """A plain table for a terminal."""
    out = RichTable(title=title, title_justify="left", box=None, pad_edge=False)
    for index, name in enumerate(columns):
        # What a line is about stays in one piece: an id that is cut short cannot be copied.
        longest_word = max(map(len, name.split()), default=0)
        out.add_column(name, overflow="fold", no_wrap=index == 0, min_width=longest_word)
    for row in rows:
        out.add_row(*row)
    return out
