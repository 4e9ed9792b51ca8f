"""Reading a pickle that may be anybody's: plain values only, and nothing is ever called.

A pickle is a program. Those of PyTorch's flight recorder hold dictionaries, lists, tuples, texts
and numbers and need no class at all, so an opcode that imports, calls or builds anything refuses
the file before a byte of it is loaded, and the unpickler refuses every class once more.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, NoReturn

from steptax.app.errors import InputError

#: Opcodes of plain values, and of the stack and the memo that hold them.
_PLAIN = frozenset(
    {
        *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP"),
        *("NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2"),
        *("LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("EMPTY_DICT", "DICT", "SETITEM", "SETITEMS"),
        *("EMPTY_LIST", "LIST", "APPEND", "APPENDS"),
        *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("GET", "BINGET", "LONG_BINGET", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"),
    }
)
_REMEMBERS = {"PUT", "BINPUT", "LONG_BINPUT"}
_HINT = (
    "a flight recorder dump holds no code: do not open this file with anything that loads pickles; "
    "dump again, as JSON where the version can"
)


class _Plain(pickle.Unpickler):
    """Refuses every class and every persistent object."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Never gives a class."""
        raise pickle.UnpicklingError(f"asks for {module}.{name}")

    def persistent_load(self, _pid: object) -> NoReturn:
        """Never gives an object."""
        raise pickle.UnpicklingError("asks for an object outside the file")


def load_plain(data: bytes, where: str) -> Any:
    """The value of a pickle of plain values; InputError names what else it asks for."""
    _screen(data, where)
    try:
        return _Plain(io.BytesIO(data)).load()
    except Exception as error:
        # The bytes decide what is raised: IndexError, TypeError, ValueError, MemoryError ...
        raise InputError(
            f"is a damaged pickle: {type(error).__name__}: {str(error)[:200]}",
            where=where,
            hint="copy or dump it anew",
        ) from None


def _screen(data: bytes, where: str) -> None:
    """InputError unless every opcode gives a plain value."""
    texts: list[str] = []
    try:
        for opcode, argument, place in pickletools.genops(data):
            if opcode.name not in _PLAIN:
                raise InputError(
                    f"is a pickle that asks for code at byte {place} ({opcode.name}"
                    f"{_asked(opcode.name, argument, texts)}); it was not loaded",
                    where=where,
                    hint=_HINT,
                )
            if isinstance(argument, str):
                texts = [*texts[-1:], argument]
            # The unpickler makes a table up to the largest number, however few there are.
            if opcode.name in _REMEMBERS and isinstance(argument, int) and argument > len(data):
                raise InputError(
                    f"is a pickle with an impossible memo number at byte {place}; "
                    "it was not loaded",
                    where=where,
                    hint=_HINT,
                )
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"is a damaged or cut pickle: {str(error)[:200]}",
            where=where,
            hint="copy or dump it anew; a dump that the job's end cut off cannot be read",
        ) from None


def _asked(opcode: str, argument: object, texts: list[str]) -> str:
    """What an import asks for, as far as the opcodes before it tell."""
    if opcode in {"GLOBAL", "INST"} and isinstance(argument, str):
        return f": {argument.replace(' ', '.')[:100]}"
    if opcode == "STACK_GLOBAL" and len(texts) == 2:
        return f": {'.'.join(texts)[:100]}"
    return ""
