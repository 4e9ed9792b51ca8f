"""CSV and JSON Lines: every line is a row with its number, or a bad line with its reason."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.errors import InputError
from steptax.connectors import sources
from steptax.connectors.sources import BadLine, Format, TextBlock, blocks, detect, head
from steptax.connectors.tables.csvlines import RECORD_LINES
from steptax.connectors.tables.csvrows import csv_header, cut_records, split_csv
from steptax.connectors.tables.jsonrows import json_header, split_json


def read_csv(data: bytes, tmp_path: Path, size: int = 1 << 20) -> tuple[list[Any], list[BadLine]]:
    """``[(line, fields...)]`` and bad lines of a CSV, read in blocks of ``size`` bytes."""
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    header = csv_header(head(path), "t.csv")
    rows: list[Any] = []
    bad: list[BadLine] = []
    for block in blocks(path, cut_at=partial(cut_records, header=header), size=size):
        found = split_csv(block, header, header.columns)
        columns = [column.to_pylist() for column in found.columns.values()]
        rows += zip(found.source_row.tolist(), *columns, strict=True)
        bad += found.bad
    return rows, bad


SIZES = pytest.mark.parametrize("size", [1, 7, 20, 64, 1 << 20])


class TestCsv:
    @SIZES
    def test_rows_and_line_numbers_hold_for_any_block_size(self, size: int, tmp_path: Path) -> None:
        data = (
            b"a,b,c\n"
            b"1,x,2.50\n"
            b"\n"
            b'2,"y, ""z""",3\r\n'
            b'3,"over\ntwo\n\nlines",4\n'
            b"4,short\n"
            b"5,one,too,many\n"
            b"6,\xff,bytes\n"
            b"7,last,1021000_0"
        )
        rows, bad = read_csv(data, tmp_path, size)
        assert rows == [
            (2, "1", "x", "2.50"),
            (4, "2", 'y, "z"', "3"),
            (5, "3", "over\ntwo\n\nlines", "4"),
            (12, "7", "last", "1021000_0"),
        ]
        assert [(line.row, line.reason) for line in bad] == [
            (9, "expected 3 fields, found 2"),
            (10, "expected 3 fields, found 4"),
            (11, "expected UTF-8 text, found other bytes"),
        ]
        assert bad[2].raw == "6,\\xff,bytes"

    @SIZES
    def test_a_stray_quote_costs_its_own_line_only(self, size: int, tmp_path: Path) -> None:
        lines = [f"{i},x{i}" for i in range(1, 401)]
        lines[9] = '10,"x10'
        lines[19] = '"20,x20'
        lines[299] = '300,x"300'
        rows, bad = read_csv("\n".join(["a,b", *lines, ""]).encode(), tmp_path, size)
        assert [line.row for line in bad] == [11, 21]
        # A quote inside a value is part of the value.
        assert (301, "300", 'x"300') in rows
        assert [row[0] for row in rows] == [i for i in range(2, 402) if i not in (11, 21)]

    def test_a_quoted_value_has_an_end_to_its_length(self, tmp_path: Path) -> None:
        def value(lines: int) -> bytes:
            return b'a,b\n1,"' + b"x\n" * lines + b'y"\n2,z\n'

        rows, bad = read_csv(value(RECORD_LINES), tmp_path)
        assert [row[0] for row in rows] == [2, RECORD_LINES + 3]
        assert not bad
        rows, bad = read_csv(value(RECORD_LINES + 1), tmp_path)
        assert [row[1:] for row in rows] == [("2", "z")]
        assert len(bad) == RECORD_LINES + 2

    def test_every_value_quoted(self, tmp_path: Path) -> None:
        data = b'"a","b"\n' + b"".join(b'"%d","x,%d"\n' % (i, i) for i in range(1000))
        rows, bad = read_csv(data, tmp_path)
        assert rows == [(i + 2, str(i), f"x,{i}") for i in range(1000)]
        assert not bad

    @pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
    def test_the_delimiter_is_seen(self, delimiter: str, tmp_path: Path) -> None:
        data = delimiter.join(["a b", "b:c", "d"]) + "\n" + delimiter.join(["1", "2.5", "x y"])
        rows, bad = read_csv(data.encode(), tmp_path)
        assert rows == [(2, "1", "2.5", "x y")]
        assert not bad

    def test_a_byte_order_mark_and_blank_lines_in_front(self, tmp_path: Path) -> None:
        rows, _ = read_csv(b"\xef\xbb\xbf\n\na,b\n1,2\n", tmp_path)
        assert rows == [(4, "1", "2")]

    def test_only_wanted_columns_are_read(self) -> None:
        header = csv_header(b"a,b,c\n1,2,3\n", "t")
        found = split_csv(TextBlock(1, b"a,b,c\n1,2,3\n4,5,6\n"), header, {"c", "a"})
        assert {name: col.to_pylist() for name, col in found.columns.items()} == {
            "a": ["1", "4"],
            "c": ["3", "6"],
        }
        assert found.raw(1) == "4,5,6"

    def test_samples_are_the_first_values_that_are_there(self) -> None:
        header = csv_header(b"a,b,c\n,x,\nbroken\n1,y,\n", "t")
        assert header.samples == ("1", "x", None)
        assert header.sample("b") == "x"
        assert header.first_row == 2

    def test_an_index_without_name_is_called_by_its_place(self) -> None:
        assert csv_header(b",step,rank\n0,1,2\n", "t").columns == ("column 1", "step", "rank")

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"a,b,a\n", "column 'a' occurs more than once"),
            (b"1,2,3\n4,5,6\n", "numbers, not column names"),
            (b"\xff\xfea,b\n", "not UTF-8 text"),
            (b"a\x00b,c\n", "control characters"),
            (b'"a,b\n', "cannot be read"),
            (b"\n\n", "cannot be read"),
            (b"x" * sources.HEAD_BYTES, "no line end"),
        ],
    )
    def test_a_header_that_is_none(self, data: bytes, message: str) -> None:
        with pytest.raises(InputError, match=message) as caught:
            csv_header(data, "t.csv")
        assert (caught.value.where or "").startswith("t.csv")
        assert caught.value.hint

    @given(
        st.lists(
            st.tuples(
                st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=8),
                st.integers(0, 999).map(str),
            ),
            max_size=20,
        ),
        st.integers(1, 60),
    )
    def test_whatever_a_csv_writer_writes_is_read(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        records: list[tuple[str, str]],
        size: int,
    ) -> None:
        def quoted(value: str) -> str:
            return '"' + value.replace('"', '""') + '"'

        data = "a,b\n" + "".join(f"{quoted(a)},{b}\n" for a, b in records)
        rows, bad = read_csv(data.encode(), tmp_path_factory.mktemp("csv"), size)
        swallowed = sum(a.count("\n") > RECORD_LINES for a, _ in records)
        assert not bad
        assert len(rows) == len(records) - swallowed
        assert [row[1:] for row in rows] == records


class TestJsonLines:
    def read(self, data: bytes) -> tuple[list[Any], list[BadLine]]:
        header = json_header(data, "t.jsonl")
        found = split_json(TextBlock(1, data), header, header.columns)
        columns = [column.to_pylist() for column in found.columns.values()]
        return list(zip(found.source_row.tolist(), *columns, strict=True)), list(found.bad)

    def test_numbers_keep_their_digits_beside_a_bad_line(self) -> None:
        rows, bad = self.read(
            b'{"id": "1021000_0", "n": 9007199254740993, "x": 1.50}\n'
            b"\n"
            b'{"id": "7", "n": 1\n'
            b'{"id": "8", "n": NaN, "x": null}\n'
            b'{"id": true, "n": [1]}\n'
        )
        assert rows == [
            (1, "1021000_0", "9007199254740993", "1.50"),
            (4, "8", "NaN", None),
            (5, "true", '["1"]', None),
        ]
        assert [line.row for line in bad] == [3]
        assert bad[0].raw == '{"id": "7", "n": 1'

    def test_a_clean_block_is_typed_but_strings_stay_text(self) -> None:
        data = b'{"day": "2025-01-31", "n": 9007199254740993}\n{"day": "2025-02-01", "n": 2}\n'
        rows, bad = self.read(data)
        assert rows == [(1, "2025-01-31", 9007199254740993), (2, "2025-02-01", 2)]
        assert not bad

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (b"[1]", "expected a JSON object, found list"),
            (b"3", "expected a JSON object, found str"),
            (b'{"a": 1, "a": 2}', "a key occurs twice"),
            (b'{"a": "\\ud800"}', "half of a surrogate pair"),
            (b'{"a": "\xff"}', "expected UTF-8 text"),
            (b'{"a": ' * 20_000, "expected a"),
            (b'{"a": 1} {"a": 2}', "expected a JSON object, found none"),
        ],
    )
    def test_what_is_no_object(self, line: bytes, reason: str) -> None:
        rows, bad = self.read(b'{"a": 1}\n' + line + b'\n{"a": 2}\n')
        assert [row[0] for row in rows] == [1, 3]
        assert [found.row for found in bad] == [2]
        assert reason in bad[0].reason

    def test_one_object_on_two_lines_and_two_on_one_do_not_even_out(self) -> None:
        rows, bad = self.read(b'{"a": 0}\n{"a": {"b": 1}\n}\n{"a": 1}{"a": 2}\n')
        assert [row[0] for row in rows] == [1]
        assert [line.row for line in bad] == [2, 3, 4]

    def test_keys_that_come_late_are_named(self) -> None:
        data = b'{"a": 1}\n' * 1000 + b'{"a": 1, "late": 2}\n'
        header = json_header(data, "t")
        assert header.columns == ("a",)
        for block in (data, data + b"broken\n"):
            assert split_json(TextBlock(1, block), header, {"a"}).notes == (
                "key 'late' is not in the first records and is not used",
            )


class TestSources:
    def test_a_format_is_told_by_content(self, tmp_path: Path) -> None:
        for name, data, form in (
            ("a.parquet", b"a,b\n1,2\n", Format.DELIMITED),
            ("a.csv", b' {"a": 1}\n', Format.JSON_LINES),
            ("a.csv.gz", gzip.compress(b"a,b\n"), Format.DELIMITED),
            ("a.txt", b"PAR1 and more", Format.PARQUET),
        ):
            path = tmp_path / name
            path.write_bytes(data)
            assert detect(path) is form

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"PK\x03\x04rest", "ZIP"),
            (b"\x80\x04rest", "pickle"),
            (b"\xff\xfea\0", "UTF-16"),
            (b"a\0b\0,\0", "zero bytes"),
            (b" [1, 2]", "JSON array"),
            (gzip.compress(b""), "is empty"),
            (b"\x1f\x8bnot really", "damaged"),
        ],
    )
    def test_other_formats_are_named(self, data: bytes, message: str, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(data)
        with pytest.raises(InputError, match=message) as caught:
            detect(path)
        assert caught.value.where == str(path)
        assert caught.value.hint

    @SIZES
    def test_blocks_are_whole_lines_and_add_up(self, size: int, tmp_path: Path) -> None:
        data = b"".join(b"%d\n" % i for i in range(300)) + b"no end"
        path = tmp_path / "x"
        path.write_bytes(data)
        found = list(blocks(path, size=size))
        assert b"".join(block.data for block in found) == data
        for block in found[:-1]:
            assert block.data.endswith(b"\n")
        lines_before = [data[: data.index(b.data)].count(b"\n") for b in found if len(b.data) > 8]
        assert [b.first_line - 1 for b in found if len(b.data) > 8] == lines_before

    def test_a_line_that_is_too_long_is_skipped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sources, "LINE_BYTES", 100)
        path = tmp_path / "x"
        path.write_bytes(b"one\n" + b"z" * 5000 + b"\nthree\n" + b"y" * 700)
        found = list(blocks(path, size=64))
        assert b"".join(block.data for block in found) == b"one\nthree\n"
        assert [(bad.row, bad.raw[0]) for b in found for bad in b.broken] == [(2, "z"), (4, "y")]
        assert next(b for b in found if b.data == b"three\n").first_line == 3

    def test_a_line_without_an_end_is_not_read_for_ever(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sources, "LINE_BYTES", 100)
        monkeypatch.setattr(sources, "SKIPPED_BYTES", 100_000)
        path = tmp_path / "bomb.gz"
        with gzip.open(path, "wb") as handle:
            handle.write(b"one\n" + bytes(10_000_000) + b"\nthree\n")
        read: list[int] = []
        whole = sources.Feed.read

        def counted(feed: sources.Feed, size: int) -> bytes:
            data = whole(feed, size)
            read.append(len(data))
            return data

        monkeypatch.setattr(sources.Feed, "read", counted)
        found = list(blocks(path, size=1024))
        assert [block.data for block in found if block.data] == [b"one\n"]
        reasons = [bad.reason for block in found for bad in block.broken]
        assert "found a longer one" in reasons[0]
        assert reasons[1:] == ["it is no text: no line end within 100,000 bytes"]
        assert sum(read) < 110_000

    @pytest.mark.parametrize("damage", [lambda d: d[:-30], lambda d: d[:-8] + b"xxxxxxxx"])
    def test_a_packed_file_gives_its_lines_up_to_the_damage(
        self, damage: Callable[[bytes], bytes], tmp_path: Path
    ) -> None:
        data = b"".join(b"%d\n" % (i * 7919) for i in range(5000))
        path = tmp_path / "x.gz"
        path.write_bytes(damage(gzip.compress(data)))
        found = list(blocks(path, size=1000))
        text = b"".join(block.data for block in found)
        assert data.startswith(text)
        assert text.endswith(b"\n")
        assert len(text) > len(data) // 2
        last = found[-1].broken[0]
        assert last.row == text.count(b"\n") + 1
        assert "breaks off or is damaged" in last.reason
