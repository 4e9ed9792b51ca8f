"""Which field of sacct's output is which: by its header, or by what the fields look like."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from steptax.app.errors import InputError
from steptax.connectors.schedulers.slurm_values import FAMILY_OF, duration_us, job_name, state_of

#: Fields in which people write what they like, also the separator.
FREE = ("jobname", "comment", "admincomment", "systemcomment", "workdir", "submitline")
#: The order in which Open XDMoD asks for them, without a header.
_XDMOD = (
    "jobid|jobidraw|cluster|partition|qos|account|group|gid|user|uid|submit|eligible|start|end|"
    "elapsed|exitcode|state|nnodes|ncpus|reqcpus|reqmem|reqtres|alloctres|timelimit|nodelist|"
    "jobname"
)
XDMOD = tuple(_XDMOD.split("|"))
#: The order in which CEEMS asks for them, without a header.
_CEEMS = (
    "jobid|partition|qos|account|group|gid|user|uid|submit|start|end|elapsed|elapsedraw|exitcode|"
    "state|alloctres|nodelist|jobname|workdir"
)
CEEMS = tuple(_CEEMS.split("|"))
#: Fields of which at least one must be there for a line to be a header.
_TELLING = {"state", "elapsed", "elapsedraw", "start", "end", "alloctres", "reqtres", "submit"}
_TELLING |= {"jobname", "partition", "account", "user", "ncpus", "nnodes", "exitcode"}
_SEPARATORS = "|\t\x1f;,^~@#!"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*|None|Unknown")
_TRES = re.compile(r"[\w/:.-]+=[^,=]*(?:,[\w/:.-]+=[^,=]*)*")
_HEAD_LINES = 50


@dataclass(frozen=True)
class Layout:
    """How a line is cut, and the place of each field.

    ``spans`` are the columns of output in fixed width; ``header_line`` is 0 where there is none.
    """

    fields: tuple[str, ...]
    separator: str
    header_line: int = 0
    spans: tuple[tuple[int, int | None], ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def at(self) -> Mapping[str, int]:
        """Place of each field by its name in small letters; the first where one comes twice."""
        return {name: i for i, name in reversed(list(enumerate(self.fields))) if name}

    @cached_property
    def free(self) -> tuple[int, ...]:
        """Places of the fields that people write."""
        return tuple(self.at[name] for name in FREE if name in self.at)


def find_layout(text: str, where: str) -> Layout:
    """The layout of output that begins with ``text``; InputError where it is none of sacct's."""
    lines = re.split(r"\r\n|\n|\r", text)[:_HEAD_LINES]
    for number, line in enumerate(lines, 1):
        names = _header(line)
        if names is None:
            continue
        below = lines[number] if number < len(lines) else ""
        if re.fullmatch(r"-+( -+)*", below.strip()):
            return _fixed(line, below, number)
        if names[1] != " ":
            return Layout(tuple(names[0]), names[1], number)
    return _guess([line for line in lines if line.strip()], where)


def is_header(line: str, layout: Layout) -> bool:
    """Whether a line repeats the names of the fields: outputs were put one behind the other."""
    names = _header(line)
    return names is not None and "jobid" in (name for name in names[0])


def _header(line: str) -> tuple[list[str], str] | None:
    """Names in small letters and what is between them; None for a line that is no header."""
    words = re.findall(r"[A-Za-z_/]+", line)
    low = {word.lower() for word in words}
    if len(line) > 8000 or not low & {"jobid", "jobidraw"} or not low & _TELLING:
        return None
    inner = re.search(r"[A-Za-z_/]([^A-Za-z_/]+)[A-Za-z_/]", line.strip())
    if inner is None:
        return None
    separator = inner[1] if inner[1].strip(" ") else " "
    names = [name.strip().lower() for name in line.strip("\r\n").split(separator)]
    if separator == " ":
        names = [name for name in names if name]
    if names and not names[-1]:
        names.pop()  # sacct --parsable ends each line with the separator
    return (names, separator) if all(re.fullmatch(r"[a-z_/]+", n) for n in names) else None


def _fixed(header: str, rule: str, number: int) -> Layout:
    starts = [m.start() for m in re.finditer(r"-+", rule)]
    ends: list[int | None] = [*starts[1:], None]
    spans = tuple(zip(starts, ends, strict=True))
    fields = tuple(header[a:b].strip().lower() for a, b in spans)
    note = "the columns have a fixed width, which cuts long values: sacct --parsable2 cuts none"
    return Layout(fields, "", number, spans, (note,))


def _guess(lines: Sequence[str], where: str) -> Layout:
    """The layout of lines without a header."""
    first = next((line for line in lines if job_name(re.split(r"[^\w+.\[\]%-]", line)[0])), None)
    counts = {mark: first.count(mark) for mark in _SEPARATORS} if first else {}
    separator = next((mark for mark in _SEPARATORS if counts.get(mark, 0) >= 3), None)
    rows = [line.split(separator) for line in lines if job_name(line.split(separator)[0])]
    if first is None or separator is None or not rows:
        raise InputError(
            "is no output of sacct: no header with JobID, and no line that begins with a job id",
            where=where,
            hint="save it by: sacct --parsable2 --allusers -o "
            "JobID,JobName,User,Account,Partition,State,Submit,Start,End,Elapsed,AllocTRES,NodeList",
        )
    for known in (XDMOD, CEEMS):
        if _fits(rows, known):
            return Layout(tuple(known), separator)
    width = min(len(row) for row in rows)
    fields = _by_looks([row for row in rows if len(row) == width], width)
    if not {"elapsed", "start", "alloctres"} & set(fields):
        raise InputError(
            "has no header, and its fields do not show which of them is the time or the devices",
            where=where,
            hint="save it again with a header: sacct --parsable2 without --noheader",
        )
    shown = ", ".join(f"{i} {name}" for i, name in enumerate(fields, 1) if name)
    note = f"there is no header; by their looks the fields are {shown}"
    return Layout(tuple(fields), separator, notes=(note,))


def _fits(rows: Sequence[Sequence[str]], names: Sequence[str]) -> bool:
    """Whether some row has exactly these fields, with a state and a duration in their places."""
    state, elapsed = names.index("state"), names.index("elapsed")
    return any(
        len(row) == len(names)
        and state_of(row[state])[0] is not None
        and duration_us(row[elapsed]) is not None
        for row in rows
    )


def _by_looks(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    fields = [""] * width
    fields[0] = "jobid"
    columns = [[row[i].strip() for row in rows if row[i].strip()] for i in range(width)]

    def all_are(i: int, pattern: re.Pattern[str]) -> bool:
        return bool(columns[i]) and all(pattern.fullmatch(cell) for cell in columns[i])

    moments = [i for i in range(1, width) if all_are(i, _MOMENT)]
    names = {2: ("start", "end"), 3: ("submit", "start", "end")}.get(
        len(moments), ("submit", "eligible", "start", "end")
    )
    for i, name in zip(moments, names, strict=False):
        fields[i] = name
    lists = [i for i in range(1, width) if all_are(i, _TRES)]
    if lists:
        fields[lists[-1]] = "alloctres"
    if len(lists) > 1:
        fields[lists[0]] = "reqtres"
    clocks = [
        i for i in range(1, width) if all_are(i, re.compile(r"(\d+-)?(\d+:)?\d+:\d\d(\.\d+)?"))
    ]
    clocks = [
        i for i in clocks if any(re.fullmatch(r"\S*\d\d:\d\d(\.\d+)?", c) for c in columns[i])
    ]
    # The limit may stand beside it; the elapsed time is the one next to the moments.
    if clocks:
        near = moments[-1] if moments else 0
        fields[min(clocks, key=lambda i: abs(i - near))] = "elapsed"
    for i in range(1, width):
        if not fields[i] and columns[i] and all(state_of(c)[1] in FAMILY_OF for c in columns[i]):
            fields[i] = "state"
            break
    return fields
