"""What every connector of the registry keeps, whatever it reads.

A new connector is covered as soon as it is in the registry and an example of its source lies in
``examples/KIND.*``.
"""

from __future__ import annotations

import builtins
import copy
import gzip
import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pytest

from steptax.app.errors import InputError, IntegrityError, NotFoundError
from steptax.app.schema import Batch, table
from steptax.connectors import registry
from steptax.connectors.base import TIME_UNITS, Capabilities, Connector, Options, RawChunk
from steptax.connectors.registry import CONNECTORS, connector

EXAMPLES = Path(__file__).parent / "examples"
STORED_BY_THE_LAKE = {"source", "ingested_at_us"}


@pytest.fixture(params=sorted(CONNECTORS))
def reader(request: pytest.FixtureRequest) -> Connector:
    return CONNECTORS[request.param]


@pytest.fixture
def example(reader: Connector) -> Path:
    found = sorted(EXAMPLES.glob(f"{reader.kind}.*"))
    assert found, f"put an example of kind {reader.kind} into {EXAMPLES.name}/"
    return found[0]


#: No reading of one small file takes so long, however busy the machine.
HANGS_S = 120


@pytest.fixture
def alarm() -> Iterator[None]:
    """Turns a hang into a failure; ``check`` sets it for each reading, however many a test does."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        # No OSError: a connector may answer one with an InputError, and then nobody would notice.
        raise RuntimeError("the connector hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, HANGS_S)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def accepted(batches: list[Batch]) -> int:
    return sum(batch.rows.num_rows for batch in batches)


def test_kinds_are_unique_and_named_like_their_key() -> None:
    assert len(CONNECTORS) == len(registry._ALL)
    assert all(kind == found.kind for kind, found in CONNECTORS.items())


def test_an_unknown_kind_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(NotFoundError, match=r"is it 'steps'\?") as caught:
        connector("step")
    assert caught.value.hint is not None
    assert all(kind in caught.value.hint for kind in CONNECTORS)


class TestEveryConnector:
    def test_it_is_documented(self, reader: Connector) -> None:
        assert reader.version >= 1
        assert 10 < len(reader.title) < 100
        assert "\n" not in reader.title
        assert len(reader.doc) > 200
        assert len({found.title for found in CONNECTORS.values()}) == len(CONNECTORS)

    def test_probe_tells_tables_and_level_and_reads_nothing_else(
        self, reader: Connector, example: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def never(*_args: object) -> Iterator[RawChunk]:
            raise AssertionError("probe must look at the head of the source only")

        monkeypatch.setattr(type(reader), "fetch", never)
        monkeypatch.setattr(type(reader), "parse", never)
        found = reader.probe(example, Options())
        assert isinstance(found, Capabilities)
        assert all(table(name).name == name for name in found.tables)
        assert 0 <= found.level <= 4
        assert found.sees
        assert found.cannot_see

    def test_rows_fit_the_schema(self, reader: Connector, example: Path) -> None:
        batches = list(reader.read(example, Options()))
        told = reader.probe(example, Options()).tables
        assert accepted(batches) > 0
        assert {batch.table for batch in batches} <= set(told)
        for batch in batches:
            spec = table(batch.table)
            names = set(batch.rows.column_names)
            assert names <= set(spec.names) - STORED_BY_THE_LAKE
            for column in spec.columns:
                if column.name not in names:
                    assert column.nullable or column.name in STORED_BY_THE_LAKE
                    continue
                cast = batch.rows[column.name].cast(column.type)
                assert column.nullable or cast.null_count == 0

    def test_keys_of_jobs_and_ranks_come_once(self, reader: Connector, example: Path) -> None:
        batches = list(reader.read(example, Options()))
        for name in ("jobs", "ranks"):
            rows = [r for batch in batches if batch.table == name for r in batch.rows.to_pylist()]
            keys = [tuple(row[k] for k in table(name).key) for row in rows]
            assert len(set(keys)) == len(keys)

    def test_notes_are_said_once(self, reader: Connector, example: Path) -> None:
        notes = [note for batch in reader.read(example, Options()) for note in batch.notes]
        assert len(set(notes)) == len(notes)

    def test_parse_is_pure(
        self, reader: Connector, example: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chunks = list(reader.fetch(example, Options()))
        assert chunks
        assert all(chunk.first_row >= 1 for chunk in chunks)
        twins = copy.deepcopy(chunks)

        def no_file(*_args: object, **_kwargs: object) -> None:
            raise AssertionError("parse must not open anything")

        first = [reader.parse(chunk, Options()) for chunk in chunks]
        monkeypatch.setattr(builtins, "open", no_file)
        monkeypatch.setattr(Path, "open", no_file)
        monkeypatch.setattr(Path, "stat", no_file)
        assert [reader.parse(chunk, Options()) for chunk in chunks] == first
        assert [reader.parse(chunk, Options()) for chunk in reversed(twins)] == first[::-1]

    def test_a_fault_of_the_connector_is_named_as_ours(
        self, reader: Connector, example: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_args: object) -> list[Batch]:
            raise ZeroDivisionError("no such thing")

        monkeypatch.setattr(type(reader), "parse", fail)
        with pytest.raises(IntegrityError, match=f"{reader.kind} failed: ZeroDivisionError"):
            list(reader.read(example, Options()))


def _flipped(data: bytes, seed: int, share: float) -> bytes:
    dice = random.Random(seed)
    out = bytearray(data)
    for _ in range(max(1, int(len(out) * share))):
        out[dice.randrange(len(out))] = dice.randrange(256)
    return bytes(out)


GARBAGE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _: b"",
    "random bytes": lambda _: random.Random(1).randbytes(70_000),
    "random bytes after gzip magic": lambda _: b"\x1f\x8b\x08" + random.Random(2).randbytes(999),
    "random bytes after Parquet magic": lambda _: b"PAR1" + random.Random(3).randbytes(999),
    "zero bytes": lambda _: bytes(10_000),
    "blank lines": lambda _: b"\n\r\n \n" * 1000,
    "one very long line": lambda data: data + b"9" * (6 << 20) + b"\n" + data,
    "UTF-16": lambda data: data.decode("utf-8", "replace").encode("utf-16"),
    "UTF-16 without mark": lambda data: data.decode("utf-8", "replace").encode("utf-16-le"),
    "Latin-1": lambda data: data.decode("utf-8", "replace").encode("latin-1", "replace"),
    "old Mac line ends": lambda data: data.replace(b"\n", b"\r"),
    "cut in half": lambda data: data[: len(data) // 2],
    "cut after a few bytes": lambda data: data[:7],
    "first line only": lambda data: data.split(b"\n")[0] + b"\n",
    "without first line": lambda data: data.split(b"\n", 1)[1],
    "repeated whole": lambda data: data * 3,
    "a quote in front": lambda data: b'"' + data,
    "packed and cut": lambda data: gzip.compress(data * 50)[:-20],
    "packed and flipped": lambda data: _flipped(gzip.compress(data * 50), 4, 0.02),
    "deep JSON": lambda _: b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"\n",
    "JSON scalars": lambda _: b'{"step": 1}\n1\nnull\n"x"\n[]\n{"step": 2\n',
    "JSON array": lambda _: b'[{"step": 1}]',
    "huge numbers": lambda _: (
        b'{"step": 1e999, "rank": -1e999, "duration_us": 1%b}\n' % (b"0" * 9999)
    ),
    "a pickle": lambda _: b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00.",
} | {f"flipped {seed}": partial(_flipped, seed=seed, share=0.03) for seed in range(12)}


class TestGarbage:
    @pytest.mark.parametrize("garbage", GARBAGE)
    def test_it_gives_an_input_error_or_rejects(
        self, reader: Connector, example: Path, garbage: str, tmp_path: Path, alarm: None
    ) -> None:
        source = tmp_path / example.name
        source.write_bytes(GARBAGE[garbage](example.read_bytes()))
        self.check(reader, source)

    def test_every_cut_of_the_example(
        self, reader: Connector, example: Path, tmp_path: Path, alarm: None
    ) -> None:
        data = example.read_bytes()
        source = tmp_path / example.name
        for end in range(len(data)):
            source.write_bytes(data[:end])
            self.check(reader, source)

    def test_what_is_no_file(self, reader: Connector, tmp_path: Path, alarm: None) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        for source in (tmp_path, tmp_path / "missing.csv", pipe, Path("bad\0name")):
            with pytest.raises(InputError) as caught:
                list(reader.read(source, Options()))
            assert caught.value.where
            assert caught.value.hint

    def check(self, reader: Connector, source: Path) -> None:
        signal.setitimer(signal.ITIMER_REAL, HANGS_S)
        try:
            batches = list(reader.read(source, Options()))
        except InputError as caught:
            refused = caught
        else:
            self.check_rows(batches)
            return
        assert str(source) in (refused.where or "")
        assert refused.hint

    def check_rows(self, batches: list[Batch]) -> None:
        for batch in batches:
            for reject in batch.rejects:
                assert reject.row is not None
                assert reject.row >= 1
                assert reject.reason
                assert len(reject.raw or "") <= 500
            assert isinstance(batch.rows, pa.Table)
        assert accepted(batches) or any(batch.rejects for batch in batches)


class TestOptions:
    def test_units_are_those_that_exist(self) -> None:
        assert [Options(time_unit=unit).time_unit for unit in TIME_UNITS] == list(TIME_UNITS)
        with pytest.raises(InputError, match="no time unit 'fortnight'"):
            Options(time_unit="fortnight")

    @pytest.mark.parametrize(
        "wrong", [{"world_size": 0}, {"attempt": -1}, {"job_id": " "}], ids=lambda w: str(w)
    )
    def test_what_no_job_can_have_is_refused(self, wrong: dict[str, object]) -> None:
        with pytest.raises(InputError) as caught:
            Options(**wrong)  # type: ignore[arg-type]
        assert (caught.value.where or "").startswith("--")
