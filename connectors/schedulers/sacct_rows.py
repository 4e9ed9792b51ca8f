"""One line of sacct's output as a record, its separators repaired where a name holds some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo

from steptax.connectors.schedulers.hostlist import hosts_in
from steptax.connectors.schedulers.sacct_layout import Layout
from steptax.connectors.schedulers.slurm_values import (
    Gpus,
    duration_us,
    gpus_in,
    gpus_of_gres,
    is_nothing,
    job_name,
    moments_us,
    state_of,
)
from steptax.connectors.values import BadValueError

#: Slurm counts whole seconds.
_ROUNDED_US = 1_000_000


@dataclass(frozen=True)
class Record:
    """What accounting says of an allocation or of a step of one.

    ``has_start`` is False where the source has no such field: then a missing start says nothing.
    ``gpus`` is None where nothing is said of devices; ``tres_said`` tells that other resources are,
    and ``sliced`` that parts of devices were held. ``hosts`` is empty where no node is named, and
    None where its list cannot be read.
    """

    row: int
    base: str
    part: int | None = None
    step: str | None = None
    cluster: str | None = None
    partition: str | None = None
    name: str | None = None
    owner: str | None = None
    account: str | None = None
    state: str | None = None
    detail: str | None = None
    submit_us: int | None = None
    start_us: int | None = None
    end_us: int | None = None
    elapsed_us: int | None = None
    gpus: int | None = None
    models: tuple[str, ...] = ()
    has_start: bool = True
    tres_said: bool = False
    sliced: bool = False
    hosts: tuple[str, ...] | None = ()

    @property
    def has_known_state(self) -> bool:
        """Whether no state is told that Slurm's manual does not list."""
        return self.state is not None or self.detail is None

    @property
    def differs(self) -> bool:
        """Whether the run time is another one than its start and its end give."""
        if self.start_us is None or self.end_us is None or self.elapsed_us is None:
            return False
        return abs(self.end_us - self.start_us - self.elapsed_us) > _ROUNDED_US

    @property
    def until_us(self) -> int | None:
        """Its end; where that contradicts the run time, the run time counts from the start on."""
        if self.differs:
            return (self.start_us or 0) + (self.elapsed_us or 0)
        return self.end_us

    @property
    def held_us(self) -> int | None:
        """How long the devices were held; None where that is not known."""
        if self.elapsed_us:
            return self.elapsed_us
        if self.start_us is None:
            return 0 if self.has_start else self.elapsed_us
        if self.elapsed_us is not None:
            return self.elapsed_us
        return None if self.end_us is None else self.end_us - self.start_us


@dataclass(frozen=True)
class Read:
    """A record, and what had to be done for it."""

    record: Record
    repaired: bool = False
    local_time: bool = False


def read_line(line: str, layout: Layout, row: int, zone: tzinfo) -> Read:
    """The record of one line; BadValueError says what is wrong with it."""
    if layout.spans:
        cells = [line[a:b].strip() for a, b in layout.spans]
        return read_cells(cells, layout, row, zone)
    cells = line.split(layout.separator)
    width = len(layout.fields)
    if len(cells) == width:
        return read_cells(cells, layout, row, zone)
    if len(cells) == width + 1 and not cells[-1].strip():
        # sacct --parsable ends each line with the separator; but an empty last field looks alike.
        try:
            found = read_cells(cells[:-1], layout, row, zone)
        except BadValueError:
            if not layout.free:
                raise
        else:
            if found.record.has_known_state or not layout.free:
                return found
            # A word that is no state may be that of another field, moved by a name.
            try:
                return _repaired(cells, layout, row, zone)
            except BadValueError:
                return found
    if len(cells) < width or not layout.free:
        said = f"{len(cells)}"
        raise BadValueError("line", f"{width} fields", None, said=said)
    return _repaired(cells, layout, row, zone)


def _repaired(cells: list[str], layout: Layout, row: int, zone: tzinfo) -> Read:
    """A line with too many fields: a name holds the separator, all else stands at both ends."""
    more = len(cells) - len(layout.fields)
    found: list[Read] = []
    for place in layout.free:
        name = layout.separator.join(cells[place : place + more + 1])
        whole = [*cells[:place], name, *cells[place + more + 1 :]]
        try:
            got = read_cells(whole, layout, row, zone)
        except BadValueError:
            continue
        if got.record.state is not None or "state" not in layout.at:
            found.append(got)
    same = {replace(got.record, name=None) for got in found}
    if len(same) != 1:
        raise BadValueError(
            "line",
            f"{len(layout.fields)} fields",
            None,
            said=f"{len(cells)}, and which of them belong together is not clear",
        )
    return replace(found[0], repaired=True)


def read_cells(cells: Sequence[str], layout: Layout, row: int, zone: tzinfo) -> Read:
    """The record of the fields of one line; BadValueError names the field that is wrong."""

    def cell(name: str) -> str:
        place = layout.at.get(name)
        return "" if place is None else cells[place].strip()

    told = cell("jobid") or cell("jobidraw")
    job = job_name(told)
    if job is None:
        raise BadValueError("jobid", "a job id such as 1021_3 or 1021.batch", told)
    state, detail = state_of(cell("state"))
    elapsed = _elapsed(cell("elapsed"), cell("elapsedraw"))
    submit = _moment("submit", cell("submit"), zone)
    start, end = _span(
        _moment("start", cell("start"), zone), _moment("end", cell("end"), zone), elapsed
    )
    if start is not None and end is not None and end < start:
        raise BadValueError("end", "an end after the start", cell("end"))
    gpus, tres_said = _gpus(cell, layout)
    record = Record(
        row,
        job.base,
        job.part,
        job.step,
        _text(cell("cluster")),
        _text(cell("partition")),
        _text(cell("jobname")),
        _text(cell("user")),
        _text(cell("account")),
        state,
        detail or None,
        submit[0] if submit else None,
        start,
        end,
        elapsed,
        gpus.count,
        gpus.models,
        has_start="start" in layout.at,
        tres_said=tres_said,
        sliced=gpus.sliced,
        hosts=hosts_in(cell("nodelist")),
    )
    moments = [cell(name) for name in ("submit", "start", "end")]
    local = any(len(text) == 19 and text[4] == "-" for text in moments)
    return Read(record, local_time=local)


def _text(text: str) -> str | None:
    return text or None


def _elapsed(clock: str, raw: str) -> int | None:
    """The run time; a limitless or unknown one is None."""
    for text in (clock, raw):
        if not is_nothing(text):
            found = duration_us(text)
            if found is None:
                raise BadValueError("elapsed", "a duration such as 1-02:03:04", text)
            return found
    return None


def _moment(field: str, text: str, zone: tzinfo) -> tuple[int, ...]:
    found = moments_us(text, zone)
    if found is None:
        raise BadValueError(field, "a time such as 2025-03-03T10:00:00", text)
    return found


def _span(
    starts: tuple[int, ...], ends: tuple[int, ...], elapsed_us: int | None
) -> tuple[int | None, int | None]:
    """Start and end; where local clocks went through an hour twice, those that fit ``elapsed``."""
    if elapsed_us is not None:
        for start in starts:
            for end in ends:
                if abs(end - start - elapsed_us) < 1_000_000:
                    return start, end
    return (starts[0] if starts else None), (ends[-1] if ends else None)


def _gpus(cell: Callable[[str], str], layout: Layout) -> tuple[Gpus, bool]:
    """Devices of a line, and whether it says anything of what was allocated."""
    for field in ("alloctres", "reqtres"):
        if field in layout.at:
            text = cell(field)
            return gpus_in(text), bool(text)
    for field in ("allocgres", "reqgres"):
        if field in layout.at:
            nodes = cell("allocnodes") or cell("nnodes")
            count = int(nodes) if nodes.isascii() and nodes.isdigit() and len(nodes) < 8 else None
            text = cell(field)
            return gpus_of_gres(text, count), bool(text)
    return Gpus(None), False
