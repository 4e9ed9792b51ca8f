"""Outputs of nccl-tests and rccl-tests of every generation; figures read by eye."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Options
from steptax.connectors.nccl.nccl_tests import NcclTestsConnector

READER = NcclTestsConnector()
Shared = Callable[[str], Path]
FOLDER = "connectors/nccl_tests"

DEVICES = """\
#  Rank  0 Group  0 Pid 11 on node-a device  0 [0000:05:00] TEST-GPU
#  Rank  1 Group  0 Pid 12 on node-b device  0 [0000:05:00] TEST-GPU
"""
_CELLS = "time   algbw   busbw #wrong     "
HEADER = (
    f"#       size         count      type   redop    root     {_CELLS}{_CELLS}\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            "
    "(us)  (GB/s)  (GB/s)\n"
)
ROW = (
    "     1048576        262144     float     sum      -1    40.00   26.21   26.21      0    "
    "41.00   25.58   25.58    N/A\n"
)


def read(path: Path, **options: Any) -> list[Batch]:
    return list(READER.read(path, Options(**options)))


def rows(batches: list[Batch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.rows.to_pylist()]


def notes(batches: list[Batch]) -> str:
    return "\n".join(note for batch in batches for note in batch.notes)


def of(found: list[dict[str, Any]], test: str, size: int) -> dict[str, Any]:
    (row,) = [r for r in found if (r["test"], r["size"]) == (test, str(size))]
    return row


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


#: File, operation, ranks, nodes, iterations; then size with time, algbw, busbw of both places.
REAL = [
    pytest.param(
        "nccl_allreduce_a100x8_old_columns.txt",
        ("all_reduce", 8, 1, 20, None),
        {
            8_589_934_592: (63896, 134.44, 235.26, 63959, 134.30, 235.03),
            1_048_576: (74.78, 14.02, 24.54, 76.17, 13.77, 24.09),
        },
        id="old, no root",
    ),
    pytest.param(
        "nccl_alltoall_a100x8_old_columns.txt",
        ("all_to_all", 8, 1, 20, None),
        {8_388_608: (121.1, 69.28, 60.62, 120.6, 69.56, 60.87)},
        id="old, blank reduction",
    ),
    pytest.param(
        "nccl_reduce_a100x8_old_columns.txt",
        ("reduce", 8, 1, 20, None),
        {4_294_967_296: (18594, 230.99, 230.99, 18570, 231.28, 231.28)},
        id="old, with root",
    ),
    pytest.param(
        "rccl_allreduce_mi300x_1node.txt",
        ("all_reduce", 8, 1, 20, 0),
        {8_589_934_592: (47617, 180.40, 315.69, 47584, 180.52, 315.91)},
        id="rccl",
    ),
    pytest.param(
        "rccl_allreduce_mi300x_2node.txt",
        ("all_reduce", 16, 2, 20, 0),
        {17_179_869_184: (90115, 190.64, 357.46, 90127, 190.62, 357.41)},
        id="rccl, two nodes",
    ),
    pytest.param(
        "mpirun_tagged_stdout_stderr_a.txt",
        ("all_reduce", 2, 1, 50, 0),
        {
            1_048_576: (4366.46, 0.24, 0.24, 4365.21, 0.24, 0.24),
            134_217_728: (58479.5, 2.30, 2.30, 58055.4, 2.31, 2.31),
        },
        id="mpirun tags",
    ),
]


@pytest.mark.parametrize(("name", "about", "sizes"), REAL)
def test_real_files(
    shared: Shared, name: str, about: tuple[Any, ...], sizes: dict[int, tuple[float, ...]]
) -> None:
    found = rows(read(shared(f"{FOLDER}/{name}")))
    op, ranks, nodes, iterations, wrong = about
    assert {r["test"].split(" ")[0] for r in found} == {op}
    for size, values in sizes.items():
        names = [
            f"{op} {metric}{place}"
            for place in ("", " in place")
            for metric in ("time", "algbw", "busbw")
        ]
        assert [of(found, test, size)["value"] for test in names] == list(values)
        row = of(found, f"{op} busbw", size)
        assert (row["ranks"], row["nodes"], row["n"]) == (ranks, nodes, iterations)
        assert row.get("wrong") == wrong
        assert row["unit"] == "GB/s"
        assert of(found, f"{op} time", size)["unit"] == "us"


def test_what_the_real_files_say_of_their_software(shared: Shared) -> None:
    tagged = rows(read(shared(f"{FOLDER}/mpirun_tagged_stdout_stderr_a.txt")))[0]
    assert json.loads(tagged["software"]) == {
        "device": "NVIDIA GeForce RTX 5090",
        "nccl": "2.29.7",
        "tests": "2.18.0",
    }
    rccl = rows(read(shared(f"{FOLDER}/rccl_allreduce_mi300x_2node.txt")))[0]
    assert rccl["host"] == "node-0,node-1"
    assert json.loads(rccl["software"])["rocm"] == "6.4.2.0-120-e7d83f5"


def test_noise_between_the_rows_of_real_files_is_passed_over_and_counted(shared: Shared) -> None:
    batches = read(shared(f"{FOLDER}/mpirun_tagged_stdout_stderr_a.txt"))
    assert not [r for b in batches for r in b.rejects]
    assert "4 lines are neither rows nor known headers" in notes(batches)
    assert "Authorization required" in notes(batches)
    # Eight sizes, two places, three figures each.
    assert len(rows(batches)) == 48


def test_a_figure_printed_as_nothing_is_not_stored(shared: Shared) -> None:
    found = rows(read(shared(f"{FOLDER}/nccl_allreduce_a100x8_old_columns.txt")))
    assert all(r["value"] > 0 for r in found)
    # 128 bytes: algbw is printed as 0.00, busbw as 0.01.
    tests = {r["test"] for r in found if r["size"] == "128"}
    assert tests == {
        *("all_reduce time", "all_reduce time in place"),
        *("all_reduce busbw", "all_reduce busbw in place"),
    }


def test_the_average_over_sizes_is_not_read(shared: Shared) -> None:
    path = shared("cases/18-nccl-algbw-vs-busbw/all_reduce.log")
    assert "126.1947" in path.read_text()
    found = rows(read(path))
    assert not [r for r in found if round(r["value"], 2) in {126.19, 126.2}]
    largest = of(found, "all_reduce busbw", 1 << 30)
    assert (largest["value"], largest["ranks"], largest["nodes"]) == (169.18, 16, 2)
    assert of(found, "all_reduce algbw", 1 << 30)["value"] == 90.23


class TestText:
    def test_wrong_results_are_counted_and_said(self, tmp_path: Path) -> None:
        bad = ROW.replace("26.21      0", "26.21     17").replace("N/A", "3*")
        text = DEVICES + HEADER + bad + "# Out of bounds values : 20 FAILED\n"
        batches = read(write(tmp_path / "all_reduce.txt", text))
        found = rows(batches)
        assert of(found, "all_reduce busbw", 1 << 20)["wrong"] == 17
        assert of(found, "all_reduce busbw in place", 1 << 20)["wrong"] == 3
        assert "20 results were out of bounds (FAILED)" in notes(batches)

    def test_an_error_of_one_in_the_old_layout_is_said(self, tmp_path: Path) -> None:
        text = (
            DEVICES
            + HEADER.replace("#wrong", "error")
            + ROW.replace("26.21      0", "26.21  1e+00")
        )
        batches = read(write(tmp_path / "all_reduce.txt", text.replace("N/A", "2e-07")))
        assert "errors of up to 1e+00: wrong results" in notes(batches)
        assert len(rows(batches)) == 6

    def test_the_very_old_names_of_columns(self, tmp_path: Path) -> None:
        header = "#  bytes  N  type  op  time  algbw  busbw  res  time  algbw  busbw  res\n"
        row = "1048576 262144 float sum 0.9 1.17 2.18 1e-07 0.8 1.31 2.4 1e-07\n"
        found = rows(read(write(tmp_path / "all_reduce.txt", header + row)))
        assert [r["value"] for r in found] == [0.9, 1.17, 2.18, 0.8, 1.31, 2.4]
        assert found[0].get("ranks") is None

    def test_columns_are_found_by_name_wherever_they_stand(self, tmp_path: Path) -> None:
        header = "# size count type redop root busbw time i_min algbw busbw time i_min algbw\n"
        row = "1048576 262144 float sum -1 26.2 40.0 39.0 13.1 26.3 41.0 38.0 13.2\n"
        found = rows(read(write(tmp_path / "all_gather.txt", header + row)))
        assert {r["test"]: r["value"] for r in found} == {
            "all_gather time": 40.0,
            "all_gather algbw": 13.1,
            "all_gather busbw": 26.2,
            "all_gather time in place": 41.0,
            "all_gather algbw in place": 13.2,
            "all_gather busbw in place": 26.3,
        }

    def test_other_units_are_refused(self, tmp_path: Path) -> None:
        text = DEVICES + HEADER.replace("(us)", "(ms)") + ROW
        batches = read(write(tmp_path / "all_reduce.txt", text))
        assert not rows(batches)
        ((reject),) = [r for b in batches for r in b.rejects]
        assert "(us)" in reject.reason
        assert reject.row == 5

    def test_reduction_and_root_that_are_not_the_usual_ones_are_part_of_the_test(
        self, tmp_path: Path
    ) -> None:
        other = ROW.replace("  sum      -1", "  max       3")
        found = rows(read(write(tmp_path / "reduce.txt", DEVICES + HEADER + ROW + other)))
        assert {r["test"] for r in found if "busbw" in r["test"] and "place" not in r["test"]} == {
            "reduce busbw",
            "reduce (max, root 3) busbw",
        }

    def test_several_tables_and_cycles_are_several_runs(self, tmp_path: Path) -> None:
        begin = "# nThread 1 nGpus 1 warmup iters: 5 iters: 7 agg iters: 1\n"
        start = "# Collective test starting: {}_perf\n"
        one = begin + start.format("all_gather") + DEVICES + HEADER + ROW + ROW
        two = begin + start.format("reduce_scatter") + DEVICES + HEADER + ROW
        found = rows(read(write(tmp_path / "both.log", one + two), job_id="night"))
        assert {(r["run_id"], r["test"]) for r in found if "busbw" in r["test"]} == {
            (run, f"{op} busbw{place}")
            for run, op in (
                ("night", "all_gather"),
                ("night, cycle 2", "all_gather"),
                ("night#2", "reduce_scatter"),
            )
            for place in ("", " in place")
        }
        assert {r["n"] for r in found} == {7}

    def test_processes_that_a_launcher_tags_are_read_apart(self, tmp_path: Path) -> None:
        lines = (DEVICES.splitlines()[0] + "\n" + HEADER + ROW).splitlines()
        text = "".join(f"[1,{p}]<stdout>:{line}\n" for line in lines for p in (0, 1))
        batches = read(write(tmp_path / "all_reduce.log", text))
        assert {r["run_id"] for r in rows(batches)} == {"all_reduce", "all_reduce#2"}
        assert "built without MPI" in notes(batches)

    def test_an_operation_that_nothing_names_is_unknown(self, tmp_path: Path) -> None:
        batches = read(write(tmp_path / "out.txt", DEVICES + HEADER + ROW))
        assert rows(batches)[0]["test"] == "unknown time"
        assert "not said by the file" in notes(batches)

    def test_the_command_line_names_the_operation(self, tmp_path: Path) -> None:
        text = "$ mpirun -np 2 ./build/sendrecv_perf -b 1M\n" + DEVICES + HEADER + ROW
        assert rows(read(write(tmp_path / "out.txt", text)))[0]["test"] == "send_recv time"

    def test_a_row_that_cannot_be_is_refused_with_its_line(self, tmp_path: Path) -> None:
        short = "     2097152        524288     float     sum      -1    70.00\n"
        odd = ROW.replace("40.00", "4o.00")
        batches = read(write(tmp_path / "all_reduce.txt", DEVICES + HEADER + ROW + short + odd))
        assert [(r.row, r.field) for b in batches for r in b.rejects] == [(6, None), (7, "time")]
        assert len(rows(batches)) == 6

    def test_names_of_columns_without_rows(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no row") as caught:
            read(write(tmp_path / "all_reduce.txt", DEVICES + HEADER))
        assert caught.value.hint

    @settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_a_hurt_line_costs_itself_alone(self, tmp_path: Path, data: st.DataObject) -> None:
        sizes = [1 << (20 + i) for i in range(6)]
        lines = [ROW.replace("1048576", str(size)) for size in sizes]
        at = data.draw(st.integers(1, 5))
        place = data.draw(st.integers(0, len(lines[at]) - 2))
        new = data.draw(
            st.characters(min_codepoint=1, max_codepoint=0x2FF, exclude_categories=["Cs"])
        )
        lines[at] = lines[at][:place] + new + lines[at][place + 1 :]
        path = tmp_path / "all_reduce.txt"
        path.write_text(DEVICES + HEADER + "".join(lines), newline="")
        found = rows(read(path))
        for size in (s for i, s in enumerate(sizes) if i != at):
            of_size = [r for r in found if r["size"] == str(size) and r["run_id"] == "all_reduce"]
            assert [r["value"] for r in of_size][:6] == [40.0, 26.21, 26.21, 41.0, 25.58, 25.58]


class TestJson:
    def body(self, **more: Any) -> dict[str, Any]:
        place = {"time": 40.0, "alg_bw": 26.21, "bus_bw": 39.3, "nwrong": 0}
        return {
            "version": 3,
            "args": ["./build/all_reduce_perf", "-b", "1M"],
            "env": ["AWS_SECRET_ACCESS_KEY=hunter2", "PATH=/bin"],
            "nccl_version": 22_907,
            "config": {
                "iters": 20,
                "devices": [
                    {"rank": n, "hostname": "node-a", "device_info": "TEST-GPU"} for n in range(4)
                ],
            },
            "results": [
                {
                    "size": 1 << 20,
                    "count": 1 << 18,
                    "type": "float",
                    "redop": "sum",
                    "root": "     -1",
                    "out_of_place": place,
                    "in_place": place | {"time": None, "cpu_time": 41.0, "nwrong": None},
                }
            ],
            "out_of_bounds": {"count": 0, "okay": "true"},
            "average_bus_bandwidth": {"bandwidth": 77.7, "okay": "unchecked"},
            "errors": [],
        } | more

    def test_results_are_read_and_the_environment_is_not(self, tmp_path: Path) -> None:
        batches = read(write(tmp_path / "out.json", json.dumps(self.body())))
        found = rows(batches)
        assert {r["test"]: r["value"] for r in found} == {
            "all_reduce time": 40.0,
            "all_reduce algbw": 26.21,
            "all_reduce busbw": 39.3,
            "all_reduce algbw in place": 26.21,
            "all_reduce busbw in place": 39.3,
        }
        assert (found[0]["ranks"], found[0]["nodes"], found[0]["n"]) == (4, 1, 20)
        assert json.loads(found[0]["software"]) == {"device": "TEST-GPU", "nccl": "2.29.7"}
        assert "hunter2" not in repr(batches)
        assert "77.7" not in repr(found)

    def test_secrets_stay_out_of_rejects_too(self, tmp_path: Path) -> None:
        body = self.body()
        body["results"] += [{"size": "large", "out_of_place": 3}, 7]
        batches = read(write(tmp_path / "out.json", json.dumps(body)))
        assert [r.row for b in batches for r in b.rejects] == [2, 3]
        assert "hunter2" not in repr(batches)

    def test_a_failure_is_said(self, tmp_path: Path) -> None:
        body = self.body(out_of_bounds={"count": 3, "okay": "false"}, errors=["timeout"])
        batches = read(write(tmp_path / "out.json", json.dumps(body)))
        assert "3 results were out of bounds (FAILED)" in notes(batches)
        assert "the test says: timeout" in notes(batches)

    @pytest.mark.parametrize("text", ['{"results": [', '{"results": 1, "algbw": 2}'])
    def test_what_is_no_whole_file_is_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(InputError, match=r"no whole JSON|no list of results"):
            read(write(tmp_path / "out.json", text))
