"""Whatever happens to some events of a trace, the others are read and nothing is invented."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Options
from steptax.connectors.kineto.pieces import between, last_cut
from steptax.connectors.registry import connector

KERNELS = 30
STEP = {
    "ph": "X",
    "cat": "user_annotation",
    "name": "ProfilerStep#1",
    "pid": 1,
    "tid": 1,
    "ts": 1000,
    "dur": 10_000,
    "args": {},
}
HEAD = '{"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [\n'
TAIL = '\n], "baseTimeNanoseconds": 1790000000000000000}\n'
FUZZ = settings(
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
Key = tuple[str, int, int]


def kernel(i: int) -> str:
    return json.dumps(
        {
            "ph": "X",
            "cat": "kernel",
            "name": f"k{i}<{{}}, {{int}}>",
            "pid": 0,
            "tid": 7,
            "ts": 1100 + i * 100.125,
            "dur": 50 + i,
            "args": {"stream": 7, "grid": [1, 2]},
        }
    )


BODY = [json.dumps(STEP), *(kernel(i) for i in range(KERNELS))]


def read(path: Path) -> list[Batch]:
    batches = list(connector("kineto").read(path, Options(job_id="j")))
    for reject in (r for b in batches for r in b.rejects):
        assert reject.row is not None
        assert reject.row >= 1
        assert reject.reason
    return batches


def kernels(batches: list[Batch]) -> set[Key]:
    found: list[dict[str, Any]] = [
        row for b in batches if b.table == "ops" for row in b.rows.to_pylist()
    ]
    return {
        (row["name"], row["start_ns"], row["duration_ns"])
        for row in found
        if row["op_type"] == "kernel"
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Key]:
    """Each kernel by its number, as the undamaged file gives it."""
    path = tmp_path_factory.mktemp("kineto") / "t.json"
    path.write_text(HEAD + ",\n".join(BODY) + TAIL)
    found = {int(key[0][1:].split("<")[0]): key for key in kernels(read(path))}
    assert len(found) == KERNELS
    return found


@st.composite
def hurt(draw: st.DrawFn, text: str) -> bytes:
    """What becomes of one event: a byte flipped, a quote or a control character put in, cut."""
    line = text.encode()
    at = draw(st.integers(1, len(line) - 1))
    what = draw(st.sampled_from(["flip", "quote", "control", "cut", "backslash", "empty"]))
    if what == "flip":
        return line[:at] + bytes([draw(st.integers(0, 255))]) + line[at + 1 :]
    if what == "cut":
        return line[:at]
    put = {"quote": b'"', "control": b"\x01", "backslash": b"\\", "empty": b""}[what]
    return line[:at] + put + (b"" if what == "empty" else line[at:])


@FUZZ
@given(data=st.data(), block=st.sampled_from([200, 1000, 1 << 20]))
def test_neighbours_of_damaged_events_are_kept(
    data: st.DataObject,
    block: int,
    whole: dict[int, Key],
    tmp_path: Path,
) -> None:
    touched = data.draw(st.sets(st.integers(0, KERNELS - 1), max_size=4))
    lines = [BODY[0].encode()]
    for i in range(KERNELS):
        lines.append(data.draw(hurt(BODY[i + 1])) if i in touched else BODY[i + 1].encode())
    path = tmp_path / "t.json"
    path.write_bytes(HEAD.encode() + b",\n".join(lines) + TAIL.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("steptax.connectors.kineto.pieces.BLOCK_BYTES", block)
        batches = read(path)
    got = kernels(batches)
    # An event that is open at its end takes the next one with it: who follows is not told apart.
    unsure = touched | {i + 1 for i in touched}
    assert {key for i, key in whole.items() if i not in unsure} <= got
    assert len(got) <= KERNELS


@FUZZ
@given(share=st.floats(0, 1), packed=st.booleans())
def test_a_cut_trace_gives_what_came_before_and_says_so(
    share: float, packed: bool, whole: dict[int, Key], tmp_path: Path
) -> None:
    data = (HEAD + ",\n".join(BODY) + TAIL).encode()
    stored = gzip.compress(data) if packed else data
    cut = int(len(stored) * share)
    path = tmp_path / "t.json"
    path.write_bytes(stored[:cut])
    try:
        batches = read(path)
    except InputError:
        # Then not even the step was there whole.
        assert packed or cut < len(HEAD) + len(BODY[0]) + 1
        return
    got = kernels(batches)
    # The base may be lost with the end, and then times count from elsewhere.
    names = {key[0] for key in whole.values()}
    assert {key[0] for key in got} <= names
    steps = [row for b in batches if b.table == "steps" for row in b.rows.to_pylist()]
    ended = cut >= len(data) - len(TAIL) + 2 if not packed else cut == len(stored)
    if not ended:
        assert any("breaks off" in note for b in batches for note in b.notes)
        assert all(row.get("compute_us") is None for row in steps)
    if not packed:
        count = sum(
            len((HEAD + ",\n".join(BODY[: i + 1])).encode()) <= cut for i in range(1, len(BODY))
        )
        assert len(got) == count


@FUZZ
@given(data=st.data())
def test_no_bytes_raise_anything_but_an_input_error(data: st.DataObject, tmp_path: Path) -> None:
    out = bytearray((HEAD + ",\n".join(BODY[:5]) + TAIL).encode())
    flips = data.draw(st.lists(st.tuples(st.integers(0, len(out) - 1), st.binary(max_size=3))))
    for at, new in flips:
        out[at : at + len(new)] = new
    path = tmp_path / "t.json"
    path.write_bytes(bytes(out))
    try:
        batches = read(path)
    except InputError as error:
        refused = error
    else:
        assert any(b.rows.num_rows or b.rejects for b in batches)
        return
    assert str(path) in (refused.where or "")
    assert refused.hint


@given(st.lists(st.sampled_from(BODY), min_size=1, max_size=8), st.sampled_from([",", " ,\n  "]))
def test_text_is_cut_exactly_between_events(events: list[str], comma: str) -> None:
    data = comma.join(events).encode()
    assert [json.loads(p) for p in between(data)] == [json.loads(e) for e in events]
    cut = last_cut(data)
    if len(events) == 1:
        assert cut is None
    else:
        assert cut is not None
        assert json.loads(data[cut[1] :]) == json.loads(events[-1])
