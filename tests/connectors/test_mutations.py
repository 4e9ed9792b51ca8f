"""Thousands of damaged inputs for every connector: no crash, no hang, no row without a place.

Which inputs they are depends on the seed alone, so a failure can be had again from what it prints.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

from steptax.app.errors import InputError
from steptax.connectors.base import Connector, Options
from steptax.connectors.registry import CONNECTORS

EXAMPLES = Path(__file__).parent / "examples"
#: Damaged inputs of each kind: quick by default, thousands in the check on a server.
INPUTS = int(os.environ.get("STEPTAX_FUZZ_INPUTS", "1000"))
#: No input of this size takes a connector longer, on any machine, unless it hangs.
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
)
EVERY = [path.read_bytes() for path in sorted(EXAMPLES.iterdir())]


def damaged(kind: str, data: bytes, number: int) -> bytes:
    """Input ``number`` of a kind: one to four kinds of damage, one after the other."""
    rng = random.Random(f"{kind} {number}")
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice(MUTATIONS)(rng, data)
    return data


@pytest.fixture
def alarm() -> Iterator[None]:
    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise RuntimeError("the connector hangs")

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def check(reader: Connector, source: Path) -> bool:
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
    return rows > 0


@pytest.mark.parametrize("kind", sorted(CONNECTORS))
def test_damaged_input_is_read_or_refused(kind: str, tmp_path: Path, alarm: None) -> None:
    example = next(iter(sorted(EXAMPLES.glob(f"{kind}.*"))))
    data = example.read_bytes()
    source = tmp_path / example.name
    read = 0
    for number in range(INPUTS):
        source.write_bytes(damaged(kind, data, number))
        signal.setitimer(signal.ITIMER_REAL, MOST_S)
        try:
            read += check(CONNECTORS[kind], source)
        except BaseException as error:
            error.add_note(f"input {number} of {kind}: damaged({kind!r}, example, {number})")
            raise
    # Damage to a part must not cost the whole: many of the inputs are hurt here and there only.
    assert read > INPUTS / 20, f"only {read} of {INPUTS} gave rows"
