"""Slurm's lists: nodes, ``gpu-[01-03,07],cpu5``, and tasks of an array, ``201_[3-9%2]``, by name.

See hostlist expressions in https://slurm.schedmd.com/scontrol.html.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import product

#: No cluster has more nodes; a longer list is damage, and would fill the memory.
MOST_HOSTS = 100_000
#: So many tasks of an array that wait are named one by one.
MOST_TASKS = 10_000
#: What Slurm writes where no node is allocated.
_NONE = frozenset(("", "none", "none assigned", "unknown", "n/a", "(null)", "null"))
_ITEM = re.compile(r"(?:[^\[\],\s]|\[[\d,-]+\])+")
_PIECE = re.compile(r"\[([\d,-]+)\]|([^\[\]]+)")
_ARRAY = re.compile(r"(?P<job>\d+_)\[(?P<tasks>[\d,:-]+)(?:%\d+)?\]")
_STRIDE = re.compile(r"(\d{1,9})-(\d{1,9})(?::(\d{1,9}))?")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@lru_cache(maxsize=4096)
def hosts_in(text: str) -> tuple[str, ...] | None:
    """The nodes of ``text``, in its order, each once; empty where none is allocated.

    None where it is no list of nodes, was cut (``gpu-[01-0+``), or names more than MOST_HOSTS.
    """
    clean = text.strip()
    if clean.lower() in _NONE:
        return ()
    if clean.endswith("+"):
        return None
    names: dict[str, None] = {}
    at = 0
    while True:
        item = _ITEM.match(clean, at)
        found = None if item is None else _names(item[0])
        if item is None or found is None or len(names) + len(found) > MOST_HOSTS:
            return None
        names |= dict.fromkeys(found)
        at = item.end() + 1
        if item.end() == len(clean):
            return tuple(names)
        if clean[item.end()] != ",":
            return None


def tasks_in(job: str) -> tuple[str, ...] | None:
    """The ids of the tasks of ``201_[3-9:2,12%5]``; None for another id, or over MOST_TASKS."""
    found = _ARRAY.fullmatch(job)
    if found is None:
        return None
    tasks: dict[int, None] = {}
    for part in found["tasks"].split(","):
        stride = _STRIDE.fullmatch(part)
        if stride is not None:
            numbers = range(int(stride[1]), int(stride[2]) + 1, int(stride[3] or 1) or 1)
        elif part.isdigit() and len(part) < 10:
            numbers = range(int(part), int(part) + 1)
        else:
            return None
        if not numbers or len(numbers) + len(tasks) > MOST_TASKS:
            return None
        tasks |= dict.fromkeys(numbers)
    return tuple(f"{found['job']}{task}" for task in tasks)


def _names(item: str) -> list[str] | None:
    """The names of one item: each bracket stands for every number in it."""
    choices: list[list[str]] = []
    total = 1
    for numbers, plain in _PIECE.findall(item):
        choice = [plain] if plain else _numbers(numbers)
        total *= len(choice or ())
        if not choice or total > MOST_HOSTS:
            return None
        choices.append(choice)
    return ["".join(parts) for parts in product(*choices)]


def _numbers(text: str) -> list[str] | None:
    """``01-03,07`` as 01, 02, 03, 07: with as many digits as the first of a range has."""
    numbers: list[str] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            return None
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last - first >= MOST_HOSTS - len(numbers):
            return None
        numbers += [str(n).zfill(len(found[1])) for n in range(first, last + 1)]
    return numbers
