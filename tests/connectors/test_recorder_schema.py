"""The recorder's own copy of the schema, and what it may import."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from steptax.app.lake.lake import Lake
from steptax.app.lake.segments import parse_name
from steptax.app.schema import table
from steptax.connectors.recorder.columns import EVENT_KINDS, TABLES
from steptax.connectors.recorder.parquet import memory, steps_encoder

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "connectors" / "recorder").glob("*.py"))
KINDS = {
    "text": pa.string(),
    "int": pa.int64(),
    "int32": pa.int32(),
    "real": pa.float64(),
    "flag": pa.bool_(),
}
VALUES: dict[str, st.SearchStrategy[object]] = {
    "text": st.text(max_size=5),
    "int": st.integers(-(2**63), 2**63 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "real": st.floats(allow_nan=False),
}

RECORD = """
from steptax.connectors.recorder import StepRecorder
with StepRecorder(sys.argv[1], "bare", 0, 1) as rec:
    for step in range(3):
        with rec.step(step):
            with rec.phase("compute"):
                sum(range(1000))
            rec.sequences([3, 4])
            rec.loss(0.5)
assert rec.stats["errors"] == 0 and rec.stats["misuse"] == 0, rec.stats
print(rec.stats["encoding"], rec.stats["rows_written"])
"""

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pyarrow", "numpy", "torch", "pandas"}:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Block())
before = set(sys.modules)
"""

ONLY_OURS = """
foreign = {
    name.split(".")[0] for name in set(sys.modules) - before
} - set(sys.stdlib_module_names) - {"steptax"}
assert not foreign, foreign
"""


def run_python(code: str, *arguments: str, python: str = sys.executable) -> str:
    done = subprocess.run(
        [python, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_columns_are_those_of_the_lake(name: str) -> None:
    ours = [(c.name, KINDS[c.kind], not c.required) for c in TABLES[name]]
    assert ours == [(c.name, c.type, c.nullable) for c in table(name).columns]


def test_the_kinds_of_events_are_those_of_the_lake() -> None:
    doc = table("events").column("kind").doc
    assert {kind.strip() for kind in doc.split(",")} == EVENT_KINDS


def test_parquet_has_the_types_of_the_lake() -> None:
    columns: dict[str, list[Any]] = {
        "job_id": ["j"],
        "attempt": [0],
        "step": [7],
        "rank": [3],
        "duration_us": [10],
        "loss": [0.5],
        "source": ["recorder"],
        "ingested_at_us": [1],
    }
    data = steps_encoder()(columns, 1)
    found = pq.read_table(pa.BufferReader(data))
    assert found.schema.equals(table("steps").arrow, check_metadata=False)
    column = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    encodings = {
        column.column(i).path_in_schema: column.column(i).encodings
        for i in range(column.num_columns)
    }
    assert "DELTA_BINARY_PACKED" in encodings["duration_us"]
    assert "RLE_DICTIONARY" in encodings["job_id"]
    assert column.column(0).compression == "ZSTD"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_sources_are_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_module_imports_the_standard_library_and_its_siblings_only(path: Path) -> None:
    # What stands at the top of a module; pyarrow is imported inside a function, where it is there.
    for node in ast.parse(path.read_text()).body:
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names or name.startswith(
                "steptax.connectors.recorder"
            )


def test_records_where_nothing_is_installed(tmp_path: Path) -> None:
    out = run_python(BLOCK + RECORD + ONLY_OURS, str(tmp_path))
    assert out.split() == ["jsonl", "9"]
    lake = Lake(tmp_path)
    [segment] = lake.segments("steps", "bare")
    assert segment.path.suffix == ".jsonl"
    assert parse_name(segment.path.name) is not None
    assert (segment.first, segment.last, segment.rows) == (0, 2, 3)
    rows = lake.read("steps", "bare")
    assert rows.schema.equals(table("steps").arrow)
    assert rows["tokens"].to_pylist() == [7, 7, 7]
    assert rows["seq_sq_sum"].to_pylist() == [25, 25, 25]
    assert rows["loss"].to_pylist() == [0.5, 0.5, 0.5]


def test_importing_it_imports_nothing_but_the_standard_library() -> None:
    code = "import sys; before = set(sys.modules); import steptax.connectors.recorder"
    run_python(code + "\n" + ONLY_OURS)


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13"])
def test_records_on_other_pythons(version: str, tmp_path: Path) -> None:
    python = shutil.which(f"python{version}")
    works = (
        python is not None
        and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
    )
    if python is None or not works:
        pytest.skip(f"python{version} is not installed")
    out = run_python("import sys\n" + RECORD, str(tmp_path), python=python)
    assert out.split()[1] == "9"


def test_parquet_is_written_without_importing_pandas(tmp_path: Path) -> None:
    out = run_python(
        "import sys\n" + RECORD + "print([m for m in ('pandas', 'torch') if m in sys.modules])",
        str(tmp_path),
    )
    assert out.split() == ["parquet", "9", "[]"]


@given(
    st.sampled_from(["text", "int", "int32", "real"]).flatmap(
        lambda kind: st.tuples(
            st.just(kind), st.lists(st.one_of(st.none(), VALUES[kind]), min_size=1, max_size=40)
        )
    )
)
def test_the_memory_of_a_column_is_what_arrow_makes_of_it(
    column: tuple[str, list[object]],
) -> None:
    kind, values = column
    buffers = [None if data is None else pa.py_buffer(data) for data in memory(kind, values)]
    found = pa.Array.from_buffers(KINDS[kind], len(values), buffers)
    found.validate(full=True)
    assert found.equals(pa.array(values, KINDS[kind]))
