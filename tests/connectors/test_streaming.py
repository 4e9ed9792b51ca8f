"""Files larger than memory: what is held does not grow with the file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from steptax.connectors.base import Options
from steptax.connectors.registry import connector
from steptax.connectors.sources import HEAD_BYTES

HEAD = "step,rank,duration_ms,compute_ms,comm_ms,tokens\n"
#: Runs in its own process, so that its peak is its own.
PROGRAM = """
import json, sys, tracemalloc
from pathlib import Path
import pyarrow as pa
from steptax.connectors.base import Options
from steptax.connectors.registry import connector
import pandas, pyarrow.csv, pyarrow.acero  # what Arrow loads by itself is not the file's
tracemalloc.start()
rows = rejects = last = 0
for batch in connector("steps").read(Path(sys.argv[1]), Options()):
    if batch.table == "steps":
        rows += batch.rows.num_rows
        rejects += len(batch.rejects)
        last = batch.rows["source_row"][-1].as_py()
print(json.dumps({
    "rows": rows, "rejects": rejects, "last": last,
    "python": tracemalloc.get_traced_memory()[1],
    "arrow": pa.default_memory_pool().max_memory(),
}))
"""


def write(path: Path, rows: int) -> None:
    with path.open("w") as handle:
        handle.write(HEAD)
        for i in range(rows):
            handle.write(f"{i // 64},{i % 64},{120 + i % 7}.125,90.5,25,4096\n")


def peaks(path: Path) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    small, large = tmp_path / "small.csv", tmp_path / "large.csv"
    write(small, 200_000)
    write(large, 2_000_000)
    little, much = peaks(small), peaks(large)
    for found, rows in ((little, 200_000), (much, 2_000_000)):
        assert found["rows"] == rows
        assert found["rejects"] == 0
        assert found["last"] == rows + 1
    # Two blocks of 4 MiB are held at once; the small file is not even two, the large one 14.
    assert large.stat().st_size > 9 * small.stat().st_size
    assert much["python"] < 1.5 * little["python"]
    assert much["arrow"] < 1.5 * little["arrow"]
    assert much["python"] + much["arrow"] < large.stat().st_size


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs /proc/self/io of Linux")
@pytest.mark.parametrize("kind", ["steps", "jobs"])
def test_probe_reads_only_the_head(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    head = HEAD if kind == "steps" else "job_id,gpus,gpu_hours\n"
    row = "1,0,120,90,25,4096\n" if kind == "steps" else "j,8,1.5\n"
    path.write_text(head + row * 1_000_000)

    def bytes_read() -> int:
        text = Path("/proc/self/io").read_text()
        return int(text.split("rchar:")[1].split()[0])

    before = bytes_read()
    connector(kind).probe(path, Options())
    # Format, header and first rows are each looked up in the head.
    assert bytes_read() - before < 8 * HEAD_BYTES < path.stat().st_size
