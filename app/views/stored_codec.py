"""Results as text and back: plain values, exact numbers, arrays, and the classes that are named.

Nothing else can be written, and nothing else is ever made of a file: what is read from a lake may
have been put there by somebody else. Read back, a value is checked as a new one is. Plain values
stand for themselves; every other one is a list that begins with what it is. The bills of a thousand
jobs are alike for the most part, so what several of them have is written once, and made once.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import orjson

#: What stands for a part that several values have.
_REFERENCE = re.compile(r'\["as","([0-9a-f]{16})"\]')
#: Parts that are written once.
_SHARED = ("of", "map", "set")


class Codec:
    """Writes and reads values of some classes: dataclasses and enumerations."""

    def __init__(self, *classes: type[Any]) -> None:
        self._classes = {one.__name__: one for one in classes}
        self._fields = {
            name: tuple(f.name for f in fields(one))
            for name, one in self._classes.items()
            if is_dataclass(one)
        }

    def to_text(self, value: Any) -> bytes:
        """``value`` as JSON; TypeError for what cannot be written."""
        return orjson.dumps(self._written(value))

    def of_text(self, text: bytes | str) -> Any:
        """What ``to_text`` wrote; some Exception for anything else."""
        return Reader(self._classes, {}).of_text(text)

    def to_texts(self, values: Iterable[Any]) -> tuple[list[str | None], dict[str, str]]:
        """Each of ``values`` as JSON, None of what cannot be written, and the parts they share."""
        trees = []
        for value in values:
            try:
                trees.append(self._written(value))
            except TypeError:
                trees.append(None)
        counts: Counter[bytes] = Counter()
        for tree in trees:
            counts.update(orjson.dumps(part) for part in _parts(tree))
        shared: dict[str, str] = {}
        texts = [_shortened(tree, counts, shared) for tree in trees]
        told = zip(trees, texts, strict=True)
        return [None if tree is None else _text(text) for tree, text in told], shared

    def reader(self, shared: Mapping[str, str]) -> Reader:
        """What reads the texts of ``to_texts``, whose parts are ``shared``."""
        return Reader(self._classes, shared)

    def _written(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else ["int", str(value)]
        if kind is float or kind is np.float64:
            return float(value) if math.isfinite(value) else ["float", str(float(value))]
        if kind is Fraction:
            return ["exact", str(value.numerator), str(value.denominator)]
        if kind is Decimal:
            return ["decimal", str(value)]
        if kind is tuple or kind is list:
            return [kind.__name__, *map(self._written, value)]
        if kind is frozenset:
            return ["set", *sorted(map(self._written, value), key=repr)]
        if isinstance(value, Mapping):
            return ["map", *([self._written(k), self._written(v)] for k, v in value.items())]
        if kind is np.ndarray and value.dtype == np.int64 and value.ndim == 1:
            return ["ints", value.tolist()]
        name = kind.__name__
        if self._classes.get(name) is not kind:
            raise TypeError(f"a {name} cannot be stored")
        if isinstance(value, Enum):
            return ["of", name, value.value]
        return ["of", name, *(self._written(getattr(value, f)) for f in self._fields[name])]


class Reader:
    """Makes values of texts; a part that several have is one object."""

    def __init__(self, classes: Mapping[str, type[Any]], shared: Mapping[str, str]) -> None:
        self._classes, self._shared = classes, shared
        self._known: dict[str, Any] = {}

    def of_text(self, text: bytes | str) -> Any:
        """The value; some Exception for what ``Codec`` did not write."""
        return self._made(orjson.loads(text))

    def _made(self, value: Any) -> Any:
        if type(value) is not list:
            return value
        kind = value[0]
        if kind == "as":
            name = value[1]
            if name not in self._known:
                self._known[name] = self.of_text(self._shared[name])
            return self._known[name]
        if kind == "of":
            return self._classes[value[1]](*map(self._made, value[2:]))
        if kind == "map":
            return {self._made(key): self._made(one) for key, one in value[1:]}
        if kind in _GROUPS:
            return _GROUPS[kind](map(self._made, value[1:]))
        return _PLAIN[kind](value)


def references(texts: Iterable[str], shared: Mapping[str, str]) -> dict[str, str]:
    """Those of ``shared`` that ``texts`` need, directly or in parts of parts."""
    found: dict[str, str] = {}
    left = list(texts)
    while left:
        for name in _REFERENCE.findall(left.pop()):
            if name not in found and name in shared:
                found[name] = shared[name]
                left.append(shared[name])
    return found


def _inside(tree: Any) -> Iterable[Any]:
    """The written values that one is made of; a map is made of its keys and values."""
    if type(tree) is not list or not tree or tree[0] == "ints":
        return ()
    return tree[1:] if tree[0] != "map" else [one for pair in tree[1:] for one in pair]


def _parts(tree: Any) -> Iterable[Sequence[Any]]:
    """Every part of a written value that may be shared, and not the value itself."""
    left = list(_inside(tree))
    while left:
        part = left.pop()
        if type(part) is list and part and part[0] in _SHARED:
            yield part
        left += _inside(part)


def _shortened(tree: Any, counts: Mapping[bytes, int], shared: dict[str, str]) -> Any:
    """``tree`` with names for what is there more than once, which ``shared`` then has."""

    def short(part: Any) -> Any:
        if type(part) is not list or not part:
            return part
        whole = orjson.dumps(part) if part[0] in _SHARED else b""
        if counts.get(whole, 0) < 2:
            return _shortened(part, counts, shared)
        name = hashlib.sha256(whole).hexdigest()[:16]
        if name not in shared:
            shared[name] = _text(_shortened(part, counts, shared))
        return ["as", name]

    if type(tree) is not list or not tree or tree[0] == "ints":
        return tree
    if tree[0] == "map":
        return ["map", *([short(key), short(value)] for key, value in tree[1:])]
    return [tree[0], *map(short, tree[1:])]


def _text(tree: Any) -> str:
    return orjson.dumps(tree).decode()


_GROUPS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "list": list, "set": frozenset}
_PLAIN: dict[str, Callable[[list[Any]], Any]] = {
    "float": lambda value: float(value[1]),
    "int": lambda value: int(value[1]),
    "exact": lambda value: Fraction(int(value[1]), int(value[2])),
    "decimal": lambda value: Decimal(value[1]),
    "ints": lambda value: np.array(value[1], dtype=np.int64),
}
