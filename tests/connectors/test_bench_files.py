"""nvbandwidth, SuperBench and mamf-finder: what their files say, and what they do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Options
from steptax.connectors.registry import connector

EXAMPLES = Path(__file__).parent / "examples"


def read(kind: str, path: Path, **extra: str) -> Batch:
    (batch,) = connector(kind).read(path, Options(extra=extra))
    return batch


def rows(batch: Batch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = batch.rows.to_pylist()
    return found


class TestNvbandwidth:
    def test_text_gives_each_cell_with_its_device_and_unit(self) -> None:
        batch = read("nvbandwidth", EXAMPLES / "nvbandwidth.txt", host="node-7")
        told = {(r["test"], r["gpu_uuid"]): (r["value"], r["unit"]) for r in rows(batch)}
        assert told == {
            ("nvbandwidth host_to_device_memcpy_ce", "GPU 0"): (26.03, "GB/s"),
            ("nvbandwidth host_to_device_memcpy_ce", "GPU 1"): (25.94, "GB/s"),
            ("nvbandwidth device_to_device_memcpy_write_ce GPU 1", "GPU 0"): (276.07, "GB/s"),
            ("nvbandwidth device_to_device_memcpy_write_ce GPU 0", "GPU 1"): (276.19, "GB/s"),
            ("nvbandwidth host_device_latency_sm", "GPU 0"): (772.58, "ns"),
            ("nvbandwidth host_device_latency_sm", "GPU 1"): (771.10, "ns"),
        }
        assert {r["host"] for r in rows(batch)} == {"node-7"}
        assert json.loads(rows(batch)[0]["software"])["nvbandwidth"] == "v0.8"
        assert any("WAIVED" in note for note in batch.notes)
        assert not batch.rejects

    def test_json_gives_the_same(self, tmp_path: Path) -> None:
        def test(name: str, text: str, matrix: list[list[str]]) -> dict[str, Any]:
            return {
                "name": name,
                "status": "Passed",
                "bandwidth_description": text,
                "bandwidth_matrix": matrix,
                "sum": 1.0,
            }

        body = {
            "nvbandwidth": {
                "version": "v0.8",
                "CUDA Runtime Version": 12080,
                "testcases": [
                    test(
                        "device_to_device_memcpy_write_ce",
                        "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)",
                        [["N/A", "276.07"], ["276.19", "oops"]],
                    ),
                    {"name": "device_local_copy", "status": "Error", "error": "out of memory"},
                ],
            }
        }
        path = tmp_path / "links.json"
        path.write_text(json.dumps(body))
        batch = read("nvbandwidth", path)
        assert [(r["gpu_uuid"], r["value"]) for r in rows(batch)] == [
            ("GPU 0", 276.07),
            ("GPU 1", 276.19),
        ]
        assert "expected a bandwidth, found 'oops'" in batch.rejects[0].reason
        assert any("device_local_copy gave no figures: 'out of memory'" in n for n in batch.notes)
        assert any("give --host" in n for n in batch.notes)


class TestSuperBench:
    def test_metrics_by_rank_with_units_where_they_are_known(self) -> None:
        batch = read("superbench", EXAMPLES / "superbench.json")
        told = {(r["test"], r["gpu_uuid"]): (r["value"], r["unit"]) for r in rows(batch)}
        assert told["gemm-flops/FP64", "rank 1"] == (9378.0, "GFLOP/s")
        assert told["kernel-launch/event_overhead", "rank 0"] == (0.00849, "ms")
        assert told["mem-bw/htod_524288kB", "rank 0"] == (25.8499, "GB/s")
        assert told["ib-loopback/IB_write_8388608_Avg_0", "rank 0"] == (23435.63, None)
        assert told["bert_models/pytorch-bert-large/steptime_train_float16", "all"][1] == "ms"
        assert ("mem-bw/htod_+064By", "rank 0") not in told
        assert any("mem-bw/return_code is 32: it failed" in note for note in batch.notes)

    def test_a_line_for_each_node(self, tmp_path: Path) -> None:
        path = tmp_path / "results-summary.jsonl"
        lines = [{"node": f"n{i}", "gemm-flops/fp16_tc_flops:0": 275000.0 + i} for i in range(3)]
        path.write_text("\n".join([*map(json.dumps, lines), "{broken"]))
        batch = read("superbench", path)
        assert {r["host"]: r["value"] for r in rows(batch)} == {
            "n0": 275000.0,
            "n1": 275001.0,
            "n2": 275002.0,
        }
        assert batch.rejects[0].row == 4


class TestMamfFinder:
    def test_shapes_and_the_best_of_each_statistic(self) -> None:
        batch = read("mamf-finder", EXAMPLES / "mamf-finder.txt")
        told = {(r["test"], r["size"]): r["value"] for r in rows(batch)}
        assert told["gemm", "2048x4096x4096"] == 733.8
        assert told["gemm best mean", "4096x4096x4096"] == 761.2
        assert told["gemm best max", "4096x4096x4096"] == 770.5
        assert len(told) == 6
        first = rows(batch)[0]
        assert (first["dtype"], first["gpu_model"], first["unit"]) == (
            "bf16",
            "NVIDIA H100 80GB HBM3",
            "TFLOP/s",
        )
        assert json.loads(first["software"])["torch"] == "2.7.0+cu126"

    def test_rows_that_were_written_over_one_another_and_tried_again(self, tmp_path: Path) -> None:
        path = tmp_path / "mm.txt"
        path.write_text(
            "** Dtype: bfloat16\n"
            "     1  4096x4096x4096      761.2  762.0  770.5  761.2   690  1755\r"
            "     2  8192x8192x8192      741.0  742.5  750.1  761.2   699  1620\r"
            "     3  4096x4096x4096      700.0  701.0  702.0  761.2   699  1500\n"
        )
        batch = read("mamf-finder", path)
        assert {r["size"]: r["value"] for r in rows(batch)} == {
            "4096x4096x4096": 762.0,
            "8192x8192x8192": 742.5,
        }
        assert any("tried again" in note for note in batch.notes)


@pytest.mark.parametrize("kind", ["nvbandwidth", "superbench", "mamf-finder"])
def test_another_file_is_refused_with_what_to_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("step,rank,duration_us\n1,0,100\n")
    with pytest.raises(InputError) as caught:
        read(kind, path)
    assert caught.value.hint
