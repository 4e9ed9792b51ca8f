"""Whatever happens to some lines of a file, the others are read and nothing is invented."""

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
from steptax.connectors.base import Connector, Options
from steptax.connectors.registry import connector

ROWS = 24
STEPS_HEAD = ["step", "rank", "duration_us", "compute_us", "host"]
OPS_HEAD = [
    *("dp_rank", "stage", "rank", "step", "optype", "start_ts"),
    *("duration", "seq_id", "mc", "mb_id", "gmc"),
]


def steps_record(i: int) -> dict[str, Any]:
    return {
        "step": 1000 + i,
        "rank": i % 4,
        "duration_us": 100_000 + i,
        "compute_us": 90_000,
        "host": f"knö{i % 2}",
    }


def ops_record(i: int) -> dict[str, Any]:
    values = (0, i % 4, i % 4, 1000 + i, "gc", i / 8, i / 16, i, 0, -1, 0)
    return dict(zip(OPS_HEAD, values, strict=True))


def inspector_record(i: int) -> dict[str, Any]:
    return {
        "header": {"id": "0x1f", "rank": i % 4, "n_ranks": 4, "nnodes": 1},
        "metadata": {"hostname": f"knö{i % 4}", "pid": 7 + i % 4},
        "coll_perf": {
            "coll": "AllReduce",
            "coll_sn": 1000 + i,
            "coll_msg_size_bytes": 1 << 20,
            "coll_exec_time_us": 400 + i,
            "coll_algobw_gbs": "nan",
        },
    }


RECORD = {"steps": steps_record, "ops": ops_record, "nccl-inspector": inspector_record}
#: Table and number of a record, where they are not called like the kind.
TABLE = {"nccl-inspector": "collectives"}
NUMBER = {"nccl-inspector": "seq"}


def lines_of(kind: str, form: str) -> tuple[list[bytes], list[bytes]]:
    """Head and body of a good file, line by line, without line ends."""
    records = [RECORD[kind](i) for i in range(ROWS)]
    if form == "jsonl":
        return [], [json.dumps(r, ensure_ascii=False).encode() for r in records]
    body = [",".join(map(str, r.values())).encode() for r in records]
    return [",".join(records[0]).encode()], body


def rows_read(reader: Connector, batches: list[Batch]) -> list[dict[str, Any]]:
    """Rows of the connector's own table, without their place in the file."""
    name = TABLE.get(reader.kind, reader.kind)
    rows = [r for b in batches if b.table == name for r in b.rows.to_pylist()]
    for row in rows:
        row.pop("source_row")
        row.pop("op_id", None)
    return rows


def key_rows(reader: Connector, batches: list[Batch]) -> dict[int, dict[str, Any]]:
    """The same by step."""
    return {row[NUMBER.get(reader.kind, "step")]: row for row in rows_read(reader, batches)}


def read(reader: Connector, path: Path) -> list[Batch]:
    batches = list(reader.read(path, Options(job_id="j")))
    for reject in (r for b in batches for r in b.rejects):
        assert reject.row is not None
        assert reject.row >= 1
        assert reject.reason
    return batches


@st.composite
def hurt(draw: st.DrawFn, line: bytes) -> list[bytes]:
    """What becomes of one line: flipped, cut, repeated, lost or in another encoding."""
    what = draw(st.sampled_from(["flip", "cut", "repeat", "lose", "utf-16", "latin-1", "quote"]))
    if what == "flip":
        at = draw(st.integers(0, len(line) - 1))
        return [line[:at] + bytes([draw(st.integers(0, 255))]) + line[at + 1 :]]
    if what == "quote":
        at = draw(st.integers(0, len(line)))
        return [line[:at] + b'"' + line[at:]]
    if what == "cut":
        return [line[: draw(st.integers(0, len(line)))]]
    if what == "repeat":
        return [line] * draw(st.integers(2, 3))
    if what == "lose":
        return []
    return [line.decode().encode(what).replace(b"\n", b"\r")]


CASES = pytest.mark.parametrize(
    ("kind", "form"),
    [
        *(("steps", "csv"), ("steps", "jsonl"), ("ops", "csv"), ("ops", "jsonl")),
        ("nccl-inspector", "jsonl"),
    ],
)
FUZZ = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@CASES
@FUZZ
@given(data=st.data())
def test_untouched_lines_are_kept(
    kind: str, form: str, data: st.DataObject, tmp_path: Path
) -> None:
    reader = connector(kind)
    head, body = lines_of(kind, form)
    path = tmp_path / f"t.{form}"
    path.write_bytes(b"\n".join([*head, *body, b""]))
    want = key_rows(reader, read(reader, path))
    assert len(want) == ROWS

    touched = data.draw(st.sets(st.integers(1, ROWS - 1), max_size=6))
    out = list(head)
    for i, line in enumerate(body):
        out += data.draw(hurt(line)) if i in touched else [line]
    path.write_bytes(b"\n".join([*out, b""]))
    batches = read(reader, path)
    got = rows_read(reader, batches)
    # A touched line may still be a row (a flipped digit); the others are what they were.
    assert all(want[1000 + i] in got for i in range(ROWS) if i not in touched)
    told = sum(len(b.rejects) for b in batches)
    # A flipped byte can be a line end, and then there is a line more than was written.
    lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    assert len(got) + told <= len(lines)


@CASES
@FUZZ
@given(share=st.floats(0, 1), packed=st.booleans())
def test_a_cut_file_gives_what_came_before_the_cut(
    kind: str, form: str, share: float, packed: bool, tmp_path: Path
) -> None:
    reader = connector(kind)
    head, body = lines_of(kind, form)
    path = tmp_path / f"t.{form}"
    data = b"\n".join([*head, *body, b""])
    path.write_bytes(data)
    want = key_rows(reader, read(reader, path))
    stored = gzip.compress(data) if packed else data
    cut = int(len(stored) * share)
    path.write_bytes(stored[:cut])
    try:
        batches = read(reader, path)
    except InputError:
        # Then not even the first row was there whole.
        first_row_ends = len(b"\n".join([*head, body[0]]))
        assert packed or cut < first_row_ends + 1
        return
    got = key_rows(reader, batches)
    if packed:
        # What is packed is cut at a line or told; no row is half of one.
        assert all(want[step] == row for step, row in got.items())
        assert cut == len(stored) or any(b.rejects for b in batches)
    else:
        whole = data[:cut].count(b"\n") - len(head)
        steps = [1000 + i for i in range(whole)]
        assert all(got[step] == want[step] for step in steps)
        assert len(got) <= whole + 1


@CASES
@FUZZ
@given(data=st.data())
def test_no_bytes_raise_anything_but_an_input_error(
    kind: str, form: str, data: st.DataObject, tmp_path: Path
) -> None:
    reader = connector(kind)
    head, body = lines_of(kind, form)
    good = b"\n".join([*head, *body[:4], b""])
    flips = data.draw(st.lists(st.tuples(st.integers(0, len(good) - 1), st.binary(max_size=3))))
    out = bytearray(good)
    for at, new in flips:
        out[at : at + len(new)] = new
    path = tmp_path / f"t.{form}"
    path.write_bytes(bytes(out))
    try:
        batches = read(reader, path)
    except InputError as error:
        refused = error
    else:
        assert any(b.rows.num_rows or b.rejects for b in batches)
        return
    assert str(path) in (refused.where or "")
    assert refused.hint
