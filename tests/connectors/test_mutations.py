"""Thousands of damaged inputs for every connector: no crash, no hang, no row without a place.

Of kinds in which each line tells its own, a line that the damage left alone gives what it gave, or
is named by a reject; and it gives nothing else.

Which inputs they are depends on the seed alone, so a failure can be had again from what it prints.
"""

from __future__ import annotations

import os
import random
import re
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Connector, Options
from steptax.connectors.registry import CONNECTORS

EXAMPLES = Path(__file__).parent / "examples"
#: Damaged inputs of each kind: quick by default, thousands in the check on a server.
INPUTS = int(os.environ.get("STEPTAX_FUZZ_INPUTS", "1000"))
#: No input of this size takes a connector so many processor seconds, unless it hangs.
MOST_S = 60.0
TOKENS = (
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"99999999999999999999999999",
    b"-1",
    b"0",
    b'"',
    b"\\",
    b"\\ud800",
    b"{",
    b"]",
    b",",
    b"\t",
    b"\r",
    b"\n",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\x1b[31m",
    b"node-7: ",
    b"%s%n",
    "\N{GREEK SMALL LETTER MU}".encode(),
)


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def behead(rng: random.Random, data: bytes) -> bytes:
    return data[rng.randrange(len(data) + 1) :]


def flip(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 30))):
        if out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _slice(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 4, 40, 400)))


def repeat(rng: random.Random, data: bytes) -> bytes:
    start, end = _slice(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 2, 20)) + data[end:]


def drop(rng: random.Random, data: bytes) -> bytes:
    start, end = _slice(rng, data)
    return data[:start] + data[end:]


def insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(TOKENS) + data[at:]


def overwrite(rng: random.Random, data: bytes) -> bytes:
    start, end = _slice(rng, data)
    return data[:start] + rng.choice(TOKENS) + data[end:]


def shuffle_lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def interleave(rng: random.Random, data: bytes) -> bytes:
    mine, theirs = data.split(b"\n"), rng.choice(EVERY).split(b"\n")
    out = []
    while mine or theirs:
        out.append((mine if mine and (not theirs or rng.random() < 0.7) else theirs).pop(0))
    return b"\n".join(out)


def recode(rng: random.Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "surrogateescape")
    return text.encode(rng.choice(("utf-16", "utf-32", "cp037", "utf-8-sig", "utf-7")), "replace")


def two_ranks(rng: random.Random, data: bytes) -> bytes:
    """The copies of two ranks, written between each other, as torchrun puts them into one log."""
    left = [data.split(b"\n"), data.split(b"\n")]
    out = []
    while any(left):
        rank = rng.choice([rank for rank in (0, 1) if left[rank]])
        out.append(b"[rank%d]: " % rank + left[rank].pop(0))
    return b"\n".join(out)


MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    cut,
    behead,
    flip,
    repeat,
    drop,
    insert,
    overwrite,
    shuffle_lines,
    interleave,
    recode,
    two_ranks,
)
EVERY = [path.read_bytes() for path in sorted(EXAMPLES.iterdir())]


def damaged(kind: str, data: bytes, number: int) -> bytes:
    """Input ``number`` of a kind: one to four kinds of damage, one after the other."""
    rng = random.Random(f"{kind} {number}")
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice(MUTATIONS)(rng, data)
    return data


#: What a line tells by itself, whatever stands around it: table and columns.
TOLD: dict[str, tuple[str, tuple[str, ...]]] = {
    "megatron": ("steps", ("step", "duration_us", "loss")),
    "maxtext": ("steps", ("step", "duration_us", "loss")),
    "nemo": ("steps", ("step", "duration_us", "loss")),
    "lightning": ("steps", ("step", "duration_us")),
    "torchtitan": ("printed_metrics", ("name", "value", "text")),
    "deepspeed": ("printed_metrics", ("name", "value", "text")),
    "hf-trainer": ("printed_metrics", ("name", "value", "text")),
    "nvrx": ("reported_scores", ("rank", "score", "host")),
    "steps": ("steps", ("step", "rank", "duration_us")),
    "ops": ("ops", ("op_type", "rank", "duration_us")),
    "events": ("events", ("kind", "start_us", "end_us")),
    "nodes": ("nodes", ("cluster", "host", "gpus", "memory_bytes")),
    "device-samples": ("device_samples", ("gpu_uuid", "ts_us", "util_ratio", "power_w")),
    "measurements": ("bench_results", ("run_id", "test", "value", "power_w")),
    "scalars": ("printed_metrics", ("job_id", "step", "name", "value", "text")),
    "nvml": ("device_samples", ("gpu_uuid", "ts_us", "power_w")),
    "nccl-inspector": ("collectives", ("seq", "bytes", "duration_us")),
    "mlflow": ("printed_metrics", ("step", "value")),
}
#: Kinds whose lines are left out where another one has told the same, or tells whose they are.
LEFT_OUT = {"lightning", "deepspeed", "hf-trainer", "nccl-inspector", "mlflow", "nvrx"}
#: Kinds whose first line says what the columns of the others are.
HEADED = {"lightning", "steps", "ops", "events", "nodes", "device-samples", "measurements"}
HEADED |= {"scalars"}
_PREFIX = re.compile(rb"^\[rank\d\]: ")
Values = tuple[Any, ...]


def _bare(line: bytes) -> bytes:
    return _PREFIX.sub(b"", line).rstrip(b"\r")


def values_by_line(kind: str, batches: Sequence[Batch]) -> list[tuple[int, Values]]:
    """Line of each row of the kind's table, and what it tells."""
    target, names = TOLD[kind]
    found = []
    for batch in batches:
        if batch.table == target and batch.rows.num_rows:
            empty = [None] * batch.rows.num_rows
            columns = batch.rows.to_pydict()
            values = zip(*(columns.get(name, empty) for name in names), strict=True)
            found += list(zip(columns["source_row"], map(repr, values), strict=True))
    return found


class Truth:
    """What the lines of an undamaged example tell, line by line."""

    def __init__(self, kind: str, example: Path) -> None:
        self.kind = kind
        lines = example.read_bytes().split(b"\n")
        self.head = lines[0]
        self.lines = {_bare(line) for line in lines}
        self.told: dict[bytes, set[Values]] = defaultdict(set)
        for line, values in values_by_line(kind, list(CONNECTORS[kind].read(example, Options()))):
            self.told[_bare(lines[line - 1])].add(values)
        assert self.told

    def hold(self, data: bytes, batches: Sequence[Batch]) -> None:
        """Good lines of ``data`` give what they gave, and nothing else."""
        lines = [_bare(line) for line in data.split(b"\n")]
        if self.kind in HEADED and lines[0] != self.head:
            return
        found = values_by_line(self.kind, batches)
        for line, values in found:
            text = lines[line - 1]
            assert text not in self.lines or values in self.told[text], (line, values, text)
        if self.kind in LEFT_OUT:
            return
        told = {values for _, values in found}
        rejected = {reject.row for batch in batches for reject in batch.rejects}
        for line, text in enumerate(lines, 1):
            missing = self.told.get(text, set()) - told
            assert not missing or line in rejected, (line, missing, text)


@pytest.fixture
def alarm() -> Iterator[None]:
    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise RuntimeError("the connector hangs")

    before = signal.signal(signal.SIGPROF, ring)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


def check(reader: Connector, source: Path, truth: Truth | None = None) -> bool:
    """Read ``source``; True when it gave rows, False when it was refused with its place."""
    try:
        batches = list(reader.read(source, Options()))
    except InputError as error:
        refused = error
        batches = None
    if batches is None:
        assert str(source) in (refused.where or "")
        assert refused.hint
        return False
    rows = 0
    for batch in batches:
        assert isinstance(batch.rows, pa.Table)
        rows += batch.rows.num_rows
        for reject in batch.rejects:
            assert reject.reason
            assert reject.row is None or reject.row >= 1
    if truth is not None:
        truth.hold(source.read_bytes(), batches)
    return rows > 0


@pytest.mark.parametrize("kind", sorted(CONNECTORS))
def test_damaged_input_is_read_or_refused(kind: str, tmp_path: Path, alarm: None) -> None:
    example = next(iter(sorted(EXAMPLES.glob(f"{kind}.*"))))
    data = example.read_bytes()
    source = tmp_path / example.name
    truth = Truth(kind, example) if kind in TOLD else None
    read = 0
    for number in range(INPUTS):
        source.write_bytes(damaged(kind, data, number))
        signal.setitimer(signal.ITIMER_PROF, MOST_S)
        try:
            read += check(CONNECTORS[kind], source, truth)
        except BaseException as error:
            error.add_note(f"input {number} of {kind}: damaged({kind!r}, example, {number})")
            raise
    # Damage to a part must not cost the whole: many of the inputs are hurt here and there only.
    assert read > INPUTS / 20, f"only {read} of {INPUTS} gave rows"


@pytest.mark.parametrize("kind", ["megatron", "maxtext", "nemo"])
def test_ranks_that_write_between_each_other_keep_their_rows(kind: str, tmp_path: Path) -> None:
    """Each rank gives the rows of the whole log, and nothing is made of their being mixed."""
    example = next(iter(sorted(EXAMPLES.glob(f"{kind}.*"))))
    data = example.read_bytes().rstrip(b"\n")
    source = tmp_path / example.name

    def rows(table: str) -> list[dict[str, Any]]:
        batches = CONNECTORS[kind].read(source, Options())
        return [row for b in batches if b.table == table for row in b.rows.to_pylist()]

    def told(row: dict[str, Any]) -> Values:
        return tuple(row.get(name) for name in ("attempt", "step", "duration_us", "loss"))

    source.write_bytes(data)
    want = sorted(map(told, rows("steps")))
    events = {(row["kind"], row["start_us"]) for row in rows("events")}
    assert want
    for number in range(40):
        source.write_bytes(two_ranks(random.Random(number), data))
        mixed = rows("steps")
        for rank in (0, 1):
            assert sorted(told(row) for row in mixed if row["rank"] == rank) == want, number
        assert {(row["kind"], row["start_us"]) for row in rows("events")} <= events, number
