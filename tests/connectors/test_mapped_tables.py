"""Tables that any monitor, inventory, sweep or tracker may export: names, units, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Options
from steptax.connectors.registry import CONNECTORS
from steptax.connectors.tables.columns import plain


def read(kind: str, path: Path, **options: Any) -> list[Batch]:
    return list(CONNECTORS[kind].read(path, Options(**options)))


def rows_of(batches: list[Batch], table: str) -> list[dict[str, Any]]:
    return [row for b in batches if b.table == table for row in b.rows.to_pylist()]


def reasons(batches: list[Batch]) -> list[str]:
    return [reject.reason for batch in batches for reject in batch.rejects]


def notes(batches: list[Batch]) -> str:
    return " | ".join(note for batch in batches for note in batch.notes)


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([*lines, ""]))
    return path


def test_a_percent_sign_in_a_name_is_its_unit() -> None:
    assert plain("utilization.gpu [%]") == "utilization_gpu_pct"
    assert plain("GPU util (%)") == "gpu_util_pct"
    assert plain("Step Time (ms)") == "step_time_ms"


class TestDeviceSamples:
    @pytest.mark.parametrize(
        ("name", "cell", "column", "want"),
        [
            ("GPU util [%]", "97.5", "util_ratio", 0.975),
            ("util_ratio", "0.5", "util_ratio", 0.5),
            ("sm_active_percent", "12", "sm_active_ratio", 0.12),
            ("memory_used_mib", "1024", "memory_used_bytes", 1 << 30),
            ("mem_used_gb", "1.5", "memory_used_bytes", 1_500_000_000),
            ("power_draw", "612.25", "power_w", 612.25),
            ("power_kw", "0.7", "power_w", 700.0),
            ("energy_kwh", "2", "energy_j", 7.2e6),
            ("temp", "61", "temperature_c", 61.0),
            ("clock_ghz", "1.98", "sm_clock_mhz", 1980.0),
            ("xid", "79", "xid", 79),
        ],
    )
    def test_a_unit_is_read_from_the_name(
        self, tmp_path: Path, name: str, cell: str, column: str, want: float
    ) -> None:
        path = written(tmp_path / "a.csv", f"time,node,uuid,{name}", f"2026-05-01,n1,GPU-1,{cell}")
        (row,) = rows_of(read("device-samples", path), "device_samples")
        assert row[column] == pytest.approx(want)
        assert (row["host"], row["gpu_uuid"], row["ts_us"]) == ("n1", "GPU-1", 1777593600000000)

    def test_masks_are_decimal_or_hexadecimal(self, tmp_path: Path) -> None:
        cells = ("0x0000000000000084", "4", "0", "", "0xffffffffffffffff", "0xZZ", "-4", "1.5")
        path = written(
            tmp_path / "a.csv",
            "time_s,uuid,clocks_event_reasons",
            *(f"{second},G,{cell}" for second, cell in enumerate(cells)),
        )
        batches = read("device-samples", path)
        found = [row["throttle_reasons"] for row in rows_of(batches, "device_samples")]
        assert found == [132, 4, 0, None, None]
        assert [r.row for b in batches for r in b.rejects] == [7, 8, 9]
        assert "expected a bit mask, decimal or as 0x" in reasons(batches)[0]

    def test_masks_of_the_published_case(self, shared: Callable[[str], Path]) -> None:
        path = shared("cases/19-throttle-bits/clocks.csv")
        batches = read("device-samples", path, mapping={"ts": "t_s"})
        found = rows_of(batches, "device_samples")
        assert (len(found), reasons(batches)) == (480, [])
        held = [r for r in found if r["throttle_reasons"] & 0xEC and not r["throttle_reasons"] & 1]
        assert len(held) == 120

    def test_a_share_without_a_unit_is_named_and_not_read(self, tmp_path: Path) -> None:
        path = written(tmp_path / "a.csv", "time,uuid,gpu_util,power", "2026-05-01,G,97,600")
        batches = read("device-samples", path)
        assert "columns not used: gpu_util" in notes(batches)
        (row,) = rows_of(batches, "device_samples")
        assert row.get("util_ratio") is None
        (mapped,) = rows_of(
            read("device-samples", path, mapping={"util_pct": "gpu_util"}), "device_samples"
        )
        assert mapped["util_ratio"] == pytest.approx(0.97)
        with pytest.raises(InputError, match="no column for anything that a device says"):
            read("device-samples", written(tmp_path / "b.csv", "time_s,uuid,gpu_util", "1,G,9"))

    def test_what_cannot_be_is_refused_and_what_is_missing_is_not_zero(
        self, tmp_path: Path
    ) -> None:
        path = written(
            tmp_path / "n7.csv",
            "time,uuid,util_pct,power_w,temperature_c",
            "2026-05-01T00:00:00Z,G,,N/A,50",
            "2026-05-01T00:00:01Z,G,101,600,50",
            "2026-05-01T00:00:02Z,G,50,-3,50",
            "2026-05-01T00:00:03Z,G,50,600,900",
            "2026-05-01T00:00:04Z,,50,600,50",
            "yesterday,G,50,600,50",
            "2026-05-01T00:00:06Z,G,50,600,50",
        )
        batches = read("device-samples", path)
        first, last = rows_of(batches, "device_samples")
        assert (first["util_ratio"], first["power_w"], first["temperature_c"]) == (None, None, 50)
        assert (last["util_ratio"], last["power_w"]) == (0.5, 600)
        assert {first["host"], last["host"]} == {"n7"}
        assert [r.row for b in batches for r in b.rejects] == [3, 4, 5, 6, 7]
        assert "at least 0, at most 100, found '101'" in reasons(batches)[0]
        assert reasons(batches)[3].startswith("expected a device")

    def test_devices_without_a_uuid(self, tmp_path: Path) -> None:
        path = written(tmp_path / "a.csv", "time,index,power", "2026-05-01,3,600")
        (row,) = rows_of(read("device-samples", path, extra={"host": "n9"}), "device_samples")
        assert (row["host"], row["gpu_uuid"], row["gpu_index"]) == ("n9", "index 3", 3)
        path = written(tmp_path / "b.csv", "time,node,power", "2026-05-01,n1,600")
        batches = read("device-samples", path)
        assert "each node counts as one device" in notes(batches)
        assert rows_of(batches, "device_samples")[0]["gpu_uuid"] == "place 0"

    def test_typed_columns_and_moments_without_a_unit(self, tmp_path: Path) -> None:
        path = tmp_path / "a.parquet"
        table = pa.table({"ts": [1.5, 2.5], "uuid": ["a", "b"], "util_pct": [10.0, None]})
        pq.write_table(table, path)
        with pytest.raises(InputError, match="the unit of column 'ts' is not known"):
            read("device-samples", path)
        rows = rows_of(read("device-samples", path, time_unit="s"), "device_samples")
        assert [(r["ts_us"], r["util_ratio"]) for r in rows] == [
            (1_500_000, 0.1),
            (2_500_000, None),
        ]


class TestNodes:
    def test_processors_and_memory_in_their_units(self, tmp_path: Path) -> None:
        path = written(
            tmp_path / "east.csv",
            "sn,cpu_milli,memory_mib,gpu,model",
            "n1,32000,262144,0,",
            "n2,96500,1024,8,H100",
            "n3,1000,1024,,H100",
            ",1000,1024,8,H100",
            "n5,1000,1024,2.5,H100",
        )
        batches = read("nodes", path)
        first, second = rows_of(batches, "nodes")
        assert first == {
            "cluster": "east",
            "host": "n1",
            "gpu_model": None,
            "gpus": 0,
            "cpus": 32.0,
            "memory_bytes": 256 << 30,
            "source_row": 2,
        }
        assert (second["gpus"], second["cpus"], second["gpu_model"]) == (8, 96.5, "H100")
        assert [r.row for b in batches for r in b.rejects] == [4, 5, 6]
        assert "the cluster is called as the file is, east" in notes(batches)

    def test_a_table_without_a_count_is_no_inventory(self, tmp_path: Path) -> None:
        path = written(tmp_path / "a.csv", "node,cores", "n1,8")
        with pytest.raises(InputError, match="no column for gpus"):
            read("nodes", path)
        with pytest.raises(InputError, match="of no job"):
            read("nodes", path, job_id="j")


class TestMeasurements:
    def test_settings_of_a_sweep_are_kept(self, tmp_path: Path) -> None:
        path = written(
            tmp_path / "sweep.csv",
            "network,batch_size,time_per_epoch_s,average_power,power_limit,gpu,optimizer,seed",
            "resnet,256,41.5,168.25,175,V100,adam,7",
            "resnet,256,x,168.25,175,V100,adam,7",
            ",256,41.5,168.25,175,V100,adam,7",
            "resnet,,40,,,V100,sgd,",
        )
        mapping = {"test": "network", "value": "time_per_epoch_s"}
        batches = read("measurements", path, mapping=mapping)
        first, last = rows_of(batches, "bench_results")
        assert (first["run_id"], first["size"], first["unit"]) == ("sweep:2", "256", "s")
        assert (first["value"], first["power_w"], first["power_limit_w"]) == (41.5, 168.25, 175)
        assert json.loads(first["settings"]) == {"optimizer": "adam", "seed": "7"}
        assert (last["size"], last["power_w"], json.loads(last["settings"])) == (
            "",
            None,
            {"optimizer": "sgd"},
        )
        assert [r.row for b in batches for r in b.rejects] == [3, 4]
        assert "kept as settings: optimizer, seed" in notes(batches)

    def test_a_unit_that_nobody_names_is_unknown(self, tmp_path: Path) -> None:
        path = written(tmp_path / "a.csv", "test,value", "gemm,812.5")
        (row,) = rows_of(read("measurements", path), "bench_results")
        assert row.get("unit") is None
        with pytest.raises(InputError, match="no column for value"):
            read("measurements", written(tmp_path / "b.csv", "test,score_of_x", "gemm,1"))


class TestScalars:
    def test_a_column_for_each_number(self, tmp_path: Path) -> None:
        path = written(
            tmp_path / "run.csv",
            "step,rank,loss,note",
            "1,,10.5,",
            "2,3,nan,spike",
            "-1,3,9,",
        )
        batches = read("scalars", path, job_id="j")
        rows = rows_of(batches, "printed_metrics")
        said = [(r["step"], r["subject"], r["name"], r["value"], r["text"]) for r in rows]
        assert said == [
            (1, "job", "loss", 10.5, "10.5"),
            (2, "rank 3", "loss", None, "nan"),
            (2, "rank 3", "note", None, "spike"),
        ]
        assert rows_of(batches, "jobs") == [{"job_id": "j", "name": "j"}]
        assert [r.row for b in batches for r in b.rejects] == [4]

    def test_a_row_for_each_number(self, tmp_path: Path) -> None:
        path = written(
            tmp_path / "long.csv",
            "run,step,tag,value,wall_time",
            "a,1,train/loss,3.5,1700000000.5",
            "b,1,lr,1e-4,1700000001",
            "b,1,,7,1700000001",
        )
        batches = read("scalars", path)
        rows = rows_of(batches, "printed_metrics")
        assert [(r["job_id"], r["printed_as"], r["value"]) for r in rows] == [
            ("a", "train/loss", 3.5),
            ("b", "lr", 1e-4),
        ]
        assert rows[0]["at_us"] == 1_700_000_000_500_000
        assert {row["job_id"] for row in rows_of(batches, "jobs")} == {"a", "b"}
        assert len(reasons(batches)) == 1

    def test_what_tensorboard_exports(self, tmp_path: Path) -> None:
        path = written(tmp_path / "loss.csv", "Wall time,Step,Value", "1700000000.5,10,2.5")
        (row,) = rows_of(read("scalars", path), "printed_metrics")
        assert (row["job_id"], row["step"], row["name"], row["value"]) == ("loss", 10, "Value", 2.5)

    def test_a_table_of_steps_alone_has_no_number(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no column for a number"):
            read("scalars", written(tmp_path / "a.csv", "step,rank", "1,0"))
