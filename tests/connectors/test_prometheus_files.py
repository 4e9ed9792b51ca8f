"""Scrapes and saved answers: real files to the values read by eye, label schemes, what is wrong."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from steptax.app.compute.bill.device_time import device_time, judge, stale_samples
from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Options
from steptax.connectors.registry import connector
from tests.compute.device_rows import series as samples_of

Shared = Callable[[str], Path]
BEGIN_S = 1_746_000_000
US = 1_000_000
MIB = 1 << 20


def read(kind: str, path: Path, **extra: str) -> list[Batch]:
    return list(connector(kind).read(path, Options(extra=extra)))


def rows(batches: list[Batch], table: str = "device_samples") -> list[dict[str, Any]]:
    found = [row for batch in batches if batch.table == table for row in batch.rows.to_pylist()]
    return [{k: v for k, v in row.items() if v is not None} for row in found]


def rejects(batches: list[Batch]) -> list[tuple[int | None, str]]:
    return [(r.row, r.reason) for batch in batches for r in batch.rejects]


def notes(batches: list[Batch]) -> str:
    return "\n".join(note for batch in batches for note in batch.notes)


def scrape(tmp_path: Path, text: str, kind: str = "dcgm", **extra: str) -> list[Batch]:
    path = tmp_path / "node-x.prom"
    path.write_text(text)
    return read(kind, path, **({"at": str(BEGIN_S)} | extra))


def answer(tmp_path: Path, *series: dict[str, Any], window: Any = None, **more: Any) -> list[Batch]:
    body = {"status": "success", "data": {"resultType": "matrix", "result": list(series)}, **more}
    first = [json.dumps({"status": "success", "window": window})] if window else []
    path = tmp_path / "answer.json"
    path.write_text("\n".join([*first, json.dumps(body)]))
    return read("prometheus", path)


def series(name: str, values: Iterable[tuple[float, Any]], **labels: str) -> dict[str, Any]:
    told = {"__name__": name, "UUID": "GPU-1", "Hostname": "node-a"} | labels
    return {"metric": told, "values": [[at, str(value)] for at, value in values]}


# --- real files


def test_a_whole_scrape_of_an_l4(shared: Shared) -> None:
    path = shared("connectors/dcgm/dcgm_l4_full_scrape_help_type.prom")
    batches = read("dcgm", path)
    [row] = rows(batches)
    assert row == {
        "host": "node-0",
        "gpu_uuid": "GPU-c2f76b33-7953-256e-8f33-1343419b1a1c",
        "ts_us": path.stat().st_mtime_ns // 1000,
        "gpu_index": 0,
        "gpu_model": "NVIDIA L4",
        "sm_clock_mhz": 210.0,
        "memory_clock_mhz": 405.0,
        "temperature_c": 31.0,
        "power_w": 16.365,
        "energy_j": pytest.approx(4742.776),
        "util_ratio": 0.0,
        "tensor_active_ratio": 0.0,
        "memory_used_bytes": 0,
        "memory_total_bytes": (22563 + 470) * MIB,
        "remapped_rows": 0,
        "source_row": 3,
    }
    assert not rejects(batches)
    # The file holds the scrape more than once, and an L4 has no sensor of its memory.
    assert "a scrape twice" in notes(batches)
    assert "DCGM_FI_DEV_MEMORY_TEMP" in notes(batches)
    assert "--at names it" in notes(batches)


def test_a_card_that_is_split_counts_once_and_as_the_whole(shared: Shared) -> None:
    batches = read("dcgm", shared("connectors/dcgm/dcgm_a100_mig.prom"), at=str(BEGIN_S))
    [row] = rows(batches)
    assert row["ts_us"] == BEGIN_S * US
    assert row["mig_enabled"] is True
    assert row["tensor_active_ratio"] == 0.92926  # of the card; its instance says 0.930433
    assert (row["power_w"], row["temperature_c"], row["memory_temperature_c"]) == (409.692, 61, 69)
    assert row["energy_j"] == pytest.approx(319159.391)
    assert row["memory_used_bytes"] == 4845 * MIB
    assert row["memory_total_bytes"] == (4845 + 35690) * MIB
    assert row["xid"] == 0
    assert "util_ratio" not in row
    assert "1 MIG instance is part of its card" in notes(batches)


def test_two_cards_whose_labels_were_cut(shared: Shared) -> None:
    batches = read("dcgm", shared("connectors/dcgm/dcgm_l40s_2gpu_no_help.prom"))
    assert {(r["gpu_uuid"], r["gpu_index"], r["sm_clock_mhz"]) for r in rows(batches)} == {
        ("GPU-a8affe7e-7930-ae20-3fc6-4b0edf3ebbf3", 0, 210.0),
        ("GPU-72ad4d20-cfed-f08d-c894-f620962ca3e4", 1, 210.0),
    }
    assert [row for row, _ in rejects(batches)] == list(range(3, 21))
    assert all("LABEL=" in reason for _, reason in rejects(batches))


def test_a_virtual_gpu_tells_little(shared: Shared) -> None:
    [row] = rows(read("dcgm", shared("connectors/dcgm/dcgm_vgpu_grid_a100.prom")))
    assert row["gpu_model"] == "GRID A100-10C"
    assert (row["sm_clock_mhz"], row["memory_clock_mhz"], row["util_ratio"]) == (1410, 1215, 0)
    assert row["memory_total_bytes"] == (9323 + 916) * MIB
    assert not {"power_w", "temperature_c", "energy_j", "memory_temperature_c"} & row.keys()


def test_ports_of_node_exporter(shared: Shared) -> None:
    path = shared("connectors/node_exporter/infiniband.prom")
    batches = read("node-exporter", path, host="node-7")
    found = {(r["device"], r["port"]): r for r in rows(batches, "port_samples")}
    assert set(found) == {("i40iw0", "1"), ("mlx4_0", "1"), ("mlx4_0", "2")}
    first = found["mlx4_0", "1"]
    assert (first["received_bytes"], first["transmitted_bytes"]) == (18_527_668, 14_933_760)
    assert (first["discards_transmitted"], first["link_downed"]) == (5, 0)
    assert found["mlx4_0", "2"]["rate_bytes_per_s"] == 5e9
    assert found["i40iw0", "1"]["rate_bytes_per_s"] == 1.25e9
    assert {(r["state_id"], r["physical_state_id"]) for r in found.values()} == {(4, 5)}
    assert {r["host"] for r in found.values()} == {"node-7"}
    # The counter of waiting stands at the end of its 32 bits.
    assert not any("transmit_wait_ticks" in r for r in found.values())
    assert "node_infiniband_port_transmit_wait_total 1" in notes(batches)


def test_an_instant_answer(shared: Shared) -> None:
    path = shared("connectors/prometheus_api/instant_query_dcgm_gpu_temp.json")
    [row] = rows(read("prometheus", path))
    assert row == {
        "host": "node-0",
        "gpu_uuid": "GPU-5b4e07f6-3a86-4340-039d-25f2a83cdc43",
        "ts_us": 1_775_721_747_082_000,
        "temperature_c": 32.0,
        "gpu_index": 0,
        "gpu_model": "NVIDIA L40S",
        "source_row": 1,
    }


def test_an_answer_about_targets_tells_who_was_down(shared: Shared) -> None:
    batches = read("prometheus", shared("connectors/prometheus_api/query_range_up_docs.json"))
    assert not rows(batches)
    assert rejects(batches) == [(1, "expected samples of devices or ports, found up")]
    assert "node localhost:9091 was down at 2 of 3 scrapes" in notes(batches)
    assert "prometheus localhost:9090" not in notes(batches)


def test_the_exporter_of_amd(shared: Shared) -> None:
    batches = read("dcgm", shared("connectors/amd_exporter/gpu_clock_lines.prom"))
    [row] = rows(batches)
    # Of the clocks only the system clock of a device is the one of its compute units.
    assert (row["gpu_uuid"], row["sm_clock_mhz"]) == ("xxxx/0", 132.0)


# --- cases that were reported in public


def test_codes_for_no_value_enter_nothing(shared: Shared) -> None:
    folder = "cases/06-dcgm-blank-and-garbage"
    wanted = _expected(shared(f"{folder}/expected.md"))
    batches = read("dcgm", shared(f"{folder}/metrics.prom"))
    found = rows(batches)
    assert len(found) == wanted["gpus"]
    util = [r["util_ratio"] * 100 for r in found if "util_ratio" in r]
    assert len(found) - len(util) == wanted["util_samples_dropped"]
    assert _mean(util) == pytest.approx(wanted["mean_gpu_util"])
    memory = [r["memory_temperature_c"] for r in found if "memory_temperature_c" in r]
    assert (max(memory), _mean(memory)) == (wanted["max_memory_temp"], wanted["mean_memory_temp"])
    active = [r["sm_active_ratio"] for r in found if "sm_active_ratio" in r]
    assert _mean(active) == pytest.approx(wanted["mean_sm_active"])
    assert _mean([r["power_w"] for r in found]) == pytest.approx(wanted["mean_power_w"])
    assert f"{wanted['missing_samples_total']} values are codes" in notes(batches)


def test_a_profiling_counter_that_stands_still_is_missing(shared: Shared, tmp_path: Path) -> None:
    folder = "cases/07-prof-counter-silent-zero"
    wanted = _expected(shared(f"{folder}/expected.md"))
    with shared(f"{folder}/gpu.csv").open() as handle:
        table = list(csv.DictReader(handle))
    times = [datetime.fromisoformat(line["time"]).timestamp() for line in table]

    def column(metric: str, name: str) -> dict[str, Any]:
        return series(metric, zip(times, (line[name] for line in table), strict=True))

    batches = answer(
        tmp_path,
        column("DCGM_FI_DEV_GPU_UTIL", "gpu_util_pct"),
        column("DCGM_FI_PROF_SM_ACTIVE", "gr_engine_active"),
        column("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gr_engine_active"),
        column("DCGM_FI_DEV_POWER_USAGE", "power_w"),
    )
    found = rows(batches)
    assert len(found) == wanted["samples"]
    assert sum("sm_active_ratio" not in r for r in found) == wanted["stuck_samples"]
    hours = wanted["interval_minutes"] / 60
    idle = [r for r in found if r.get("sm_active_ratio") == 0]
    assert len(idle) * hours == wanted["true_idle_hours"]
    assert all(r["util_ratio"] == 0 for r in idle)
    assert f"{wanted['stuck_samples']} samples have a profiling counter at 0" in notes(batches)


def test_numbers_are_no_identity(shared: Shared, tmp_path: Path) -> None:
    wanted = _expected(shared("cases/09-gpu-index-mismatch/expected.md"))
    with shared("cases/09-gpu-index-mismatch/telemetry.csv").open() as handle:
        table = list(csv.DictReader(handle))
    line = (
        'DCGM_FI_DEV_GPU_UTIL{{gpu="{nvml_index}",UUID="{uuid}",Hostname="{host}"}} {gpu_util_pct}'
    )
    text = "\n".join(line.format(**values) for values in table)
    found = {r["gpu_uuid"]: r["util_ratio"] for r in rows(scrape(tmp_path, text))}
    for job in ("j100", "j101"):
        assert found[wanted[job]["uuid"]] == pytest.approx(wanted[job]["util"] / 100)
    batches = scrape(tmp_path, 'DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="node-b07"} 3\n')
    assert not rows(batches)
    assert "a label UUID, which alone tells a device" in rejects(batches)[0][1]


def test_a_card_under_several_pods_counts_once(shared: Shared) -> None:
    folder = "cases/10-duplicate-series-per-gpu"
    wanted = _expected(shared(f"{folder}/expected.md"))
    batches = read("dcgm", shared(f"{folder}/metrics.prom"))
    found = rows(batches)
    assert len(found) == wanted["gpus"]
    assert _mean([r["util_ratio"] * 100 for r in found]) == wanted["mean_util"]
    assert {r["ts_us"] for r in found} == {BEGIN_S * US}
    assert f"{wanted['wrong_count'] - wanted['gpus']} values came again" in notes(batches)


def test_values_of_a_hung_exporter_are_not_observed(shared: Shared, tmp_path: Path) -> None:
    folder = "cases/22-stale-values-after-failure"
    wanted = _expected(shared(f"{folder}/expected.md"))
    batches = answer(tmp_path, *_hung(shared(f"{folder}/gpu.csv")))
    assert not rejects(batches)
    samples = samples_of(rows(batches))
    found = device_time(samples, judge(samples))
    assert found.stale_us == wanted["stale_minutes"] * 60 * US
    assert found.busy_us == wanted["observed_minutes"] * 60 * US
    assert found.busy_us / US / 3600 == pytest.approx(wanted["busy_gpu_hours"], abs=1e-4)


def test_a_hung_exporter_is_seen_across_windows(shared: Shared, tmp_path: Path) -> None:
    path = shared("cases/22-stale-values-after-failure/gpu.csv")
    kept: list[dict[str, Any]] = []
    for start in range(-60, 5400, 300):
        window = {
            "read_from_us": (BEGIN_S + start - 900) * US,
            "start_us": (BEGIN_S + start) * US,
            "end_us": (BEGIN_S + start + 300) * US,
        }
        kept += rows(answer(tmp_path, *_hung(path), window=window))
    assert len(kept) == 90
    # No window holds the run, but what was stored does: none of it counts as observed.
    assert stale_samples(samples_of(kept)).sum() == 50


def _hung(path: Path) -> list[dict[str, Any]]:
    with path.open() as handle:
        table = list(csv.DictReader(handle))
    names = {
        "DCGM_FI_DEV_GPU_UTIL": "gpu_util_pct",
        "DCGM_FI_DEV_POWER_USAGE": "power_w",
        "DCGM_FI_DEV_GPU_TEMP": "temp_c",
    }
    return [
        series(metric, [(BEGIN_S + float(line["t_s"]), line[name]) for line in table])
        for metric, name in names.items()
    ]


def _expected(path: Path) -> dict[str, Any]:
    text = path.read_text().split("```json")[1].split("```")[0]
    found: dict[str, Any] = json.loads(text)
    return found


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


# --- label schemes


@pytest.mark.parametrize(
    ("labels", "host", "uuid"),
    [
        ('UUID="GPU-1",Hostname="node-a",gpu="3"', "node-a", "GPU-1"),
        ('UUID="GPU-1",Hostname="node-a",hpc_job="1234"', "node-a", "GPU-1"),
        ('uuid="GPU-1",node="node-a"', "node-a", "GPU-1"),
        ('UUID="GPU-1",Hostname="dcgm-exporter-x7k2p",node="node-a"', "node-a", "GPU-1"),
        ('UUID="GPU-1",instance="node-a:9400",job="dcgm",pod="p"', "node-a", "GPU-1"),
        ('UUID="GPU-1",exported_pod="p",exported_namespace="n"', "node-x", "GPU-1"),
        ('UUID="GPU-1::2",Hostname="node-a"', "node-a", "GPU-1"),
        ('UUID="GPU-1",Hostname="no\\"de\\\\a"', 'no"de\\a', "GPU-1"),
    ],
)
def test_who_a_series_is_of(labels: str, host: str, uuid: str, tmp_path: Path) -> None:
    [row] = rows(scrape(tmp_path, f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 61\n"))
    assert (row["host"], row["gpu_uuid"], row["temperature_c"]) == (host, uuid, 61.0)


def test_what_is_told_of_instances_only(tmp_path: Path) -> None:
    line = '{{UUID="GPU-1",GPU_I_ID="{i}",Hostname="a"}}'
    text = "".join(
        f"{name}{line.format(i=i)} {value}\n"
        for i, active in ((1, 0.2), (2, 0.9))
        for name, value in (("DCGM_FI_PROF_SM_ACTIVE", active), ("DCGM_FI_DEV_POWER_USAGE", 300))
    )
    batches = scrape(tmp_path, text)
    [row] = rows(batches)
    # Power is the card's wherever it is told; activity of a part says nothing of the whole.
    assert row["power_w"] == 300.0
    assert "sm_active_ratio" not in row
    assert "2 MIG instances" in notes(batches)


def test_names_of_all_exporters(tmp_path: Path) -> None:
    amd = 'gpu_id="1",serial_number="692",hostname="node-b",card_model="MI300X"'
    batches = scrape(
        tmp_path,
        'dcgm_gpu_utilization{gpu="0",uuid="GPU-1"} 50\n'
        'dcgm_fb_used{gpu="0",uuid="GPU-1"} 2\n'
        f"gpu_gfx_activity{{{amd}}} 75\n"
        f"gpu_used_vram{{{amd}}} 3\n"
        f"gpu_total_vram{{{amd}}} 196592\n"
        f"gpu_power_usage{{{amd}}} 5\n"
        f"gpu_package_power{{{amd}}} 700\n"
        f"gpu_energy_consumed{{{amd}}} 2500000\n"
        f"gpu_edge_temperature{{{amd}}} 40\n"
        f"gpu_junction_temperature{{{amd}}} 55\n",
    )
    new, old = rows(batches)
    assert (old["util_ratio"], old["memory_used_bytes"]) == (0.5, 2 * MIB)
    assert (new["host"], new["gpu_uuid"], new["gpu_model"]) == ("node-b", "692/1", "MI300X")
    assert (new["util_ratio"], new["power_w"], new["energy_j"]) == (0.75, 700.0, 2.5)
    assert (new["temperature_c"], new["memory_total_bytes"]) == (55.0, 196592 * MIB)


def test_errors_of_all_links_are_added(tmp_path: Path) -> None:
    text = "".join(
        f'DCGM_FI_DEV_NVLINK_{name}_ERROR_COUNT_TOTAL{{UUID="GPU-1"}} {count}\n'
        for name, count in (("CRC_FLIT", 1), ("CRC_DATA", 20), ("REPLAY", 300), ("RECOVERY", 4000))
    )
    [row] = rows(scrape(tmp_path, text))
    assert row["nvlink_errors"] == 4321


def test_values_of_one_moment_that_contradict(tmp_path: Path) -> None:
    line = 'DCGM_FI_DEV_GPU_TEMP{{UUID="GPU-1",pod="{}"}} {}\n'
    batches = scrape(tmp_path, line.format("a", 61) + line.format("b", 62))
    assert [r["temperature_c"] for r in rows(batches)] == [61.0]
    assert "1 value contradicts another one" in notes(batches)


def test_words_of_old_node_exporters_are_bytes(tmp_path: Path) -> None:
    text = (
        'node_infiniband_port_data_received_bytes{device="mlx5_0",port="1"} 250\n'
        'node_infiniband_link_downed{device="mlx5_0",port="1"} 3\n'
    )
    [row] = rows(scrape(tmp_path, text, "node-exporter"), "port_samples")
    assert (row["received_bytes"], row["link_downed"], row["host"]) == (1000, 3, "node-x")


def test_moments_of_lines(tmp_path: Path) -> None:
    line = 'DCGM_FI_DEV_GPU_TEMP{{UUID="GPU-1"}} 61 {}\n'
    text = line.format("1746000000123") + line.format("1746000001.5") + line.format("-5")
    batches = scrape(tmp_path, text + "# EOF\n")
    assert [r["ts_us"] for r in rows(batches)] == [1_746_000_000_123_000, 1_746_000_001_500_000]
    assert rejects(batches) == [(3, "expected a moment since 1970, found '-5'")]
    path = tmp_path / "node-x.prom"
    path.write_text('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1"} 61\n')
    os.utime(path, (BEGIN_S, BEGIN_S))
    assert [r["ts_us"] for r in rows(read("dcgm", path))] == [BEGIN_S * US]
    with pytest.raises(InputError, match="expected a moment") as caught:
        read("dcgm", path, at="noon")
    assert caught.value.where == "--at"


def test_other_metrics_are_named(tmp_path: Path) -> None:
    path = tmp_path / "node.prom"
    path.write_text("node_load1 0.25\n")
    for kind in ("dcgm", "node-exporter"):
        with pytest.raises(InputError, match="holds no metric of this kind"):
            read(kind, path)


# --- answers of the interface


def test_missing_steps_are_gaps_and_numbers_that_are_none_are_missing(tmp_path: Path) -> None:
    at = [BEGIN_S + 30 * i for i in range(20) if not 5 <= i < 11]
    values: list[Any] = [600.0 + i for i in range(len(at))]
    values[1], values[2], values[3] = "NaN", "+Inf", "-Inf"
    batches = answer(tmp_path, series("DCGM_FI_DEV_POWER_USAGE", zip(at, values, strict=True)))
    found = rows(batches)
    assert [r["ts_us"] // US for r in found] == [at[0], *at[4:]]
    assert "3 values are codes" in notes(batches)
    assert "2 gaps between samples, 330 s in all" in notes(batches)
    assert "the longest is 210 s of node-a GPU-1 from 1746000120 on" in notes(batches)


def test_the_edges_of_what_was_asked_for_are_gaps_too(tmp_path: Path) -> None:
    window = {
        "read_from_us": BEGIN_S * US,
        "start_us": BEGIN_S * US,
        "end_us": (BEGIN_S + 900) * US,
    }
    at = range(BEGIN_S, BEGIN_S + 500, 30)
    batches = answer(
        tmp_path, series("DCGM_FI_DEV_POWER_USAGE", [(t, t % 97) for t in at]), window=window
    )
    assert [r["ts_us"] // US for r in rows(batches)] == list(at)[1:]  # open at its begin
    assert "1 gap between samples, 420 s in all" in notes(batches)


def test_a_counter_that_begins_again_is_told(tmp_path: Path) -> None:
    values = [(BEGIN_S, 9_000_000), (BEGIN_S + 30, 9_900_000), (BEGIN_S + 60, 1_000)]
    batches = answer(tmp_path, series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", values))
    assert [r["energy_j"] for r in rows(batches)] == [9000.0, 9900.0, 1.0]
    assert "energy counters began again 1 time:" in notes(batches)


def test_warnings_errors_and_damage(tmp_path: Path) -> None:
    good = series("DCGM_FI_DEV_GPU_TEMP", [(BEGIN_S, 61)])
    batches = answer(tmp_path, good, warnings=["a store did not answer"])
    assert "the server warns: a store did not answer" in notes(batches)
    body = {"status": "success", "data": {"resultType": "vector", "result": [good]}}
    path = tmp_path / "answer.json"
    path.write_text(
        '{"status":"error","errorType":"bad_data","error":"parse error"}\n'
        '{"status": "succ\n' + json.dumps(body) + "\n"
    )
    batches = read("prometheus", path)
    assert len(rows(batches)) == 1
    assert [row for row, _ in rejects(batches)] == [1, 2]
    assert "the error of a query: bad_data: parse error" in rejects(batches)[0][1]


def test_values_that_are_no_pairs(tmp_path: Path) -> None:
    bad = series("DCGM_FI_DEV_GPU_TEMP", [])
    bad["values"] = [[BEGIN_S, "61"], [BEGIN_S], ["x", "62"], [BEGIN_S + 1, "hot"], [-1, "1"], None]
    batches = answer(
        tmp_path, bad, {"metric": None}, {"metric": {"__name__": "DCGM_FI_DEV_GPU_TEMP"}}
    )
    assert len(rows(batches)) == 1
    assert len(rejects(batches)) == 7


def test_a_long_answer_is_one_line(tmp_path: Path) -> None:
    times = [BEGIN_S + i for i in range(900)]
    cards = [
        series("DCGM_FI_DEV_GPU_TEMP", [(t, 40 + t % 7) for t in times], UUID=f"GPU-{card}")
        for card in range(100)
    ]
    batches = answer(tmp_path, *cards)
    assert (tmp_path / "answer.json").stat().st_size > 1 << 20
    assert len(rows(batches)) == 90_000
    assert not rejects(batches)


NCCL = {
    "version": "v5.1",
    "slurm_job_id": "4711",
    "node": "node-0",
    "gpu": "GPU0",
    "comm_name": "DP Group 0",
    "n_nodes": "1",
    "nranks": "4",
    "collective": "AllReduce",
    "message_size": "4-5GB",
    "algo_proto": "Ring_ll",
}


def test_gauges_of_nccl_inspector_are_a_figure_per_window(tmp_path: Path) -> None:
    values = [(BEGIN_S + 30 * i, 600 + i) for i in range(41)]
    window = {
        "read_from_us": (BEGIN_S + 300) * US,
        "start_us": (BEGIN_S + 600) * US,
        "end_us": (BEGIN_S + 1200) * US,
    }
    busbw = series("nccl_bus_bandwidth_gbs", [*values, (BEGIN_S + 900, "NaN")], **NCCL)
    found = answer(tmp_path, busbw, window=window)
    [row] = rows(found, "bench_results")
    # Those after the begin of the window: 621 to 640.
    assert (row["n"], row["value"], row["unit"]) == (20, 630.5, "GB/s")
    assert (row["p5"], row["p95"]) == (pytest.approx(621.95), pytest.approx(639.05))
    assert row["run_id"] == "4711#2025-04-30T08:10:00Z"
    assert (row["host"], row["gpu_uuid"], row["size"]) == ("node-0", "GPU0 of node-0", "4-5GB")
    assert (row["ranks"], row["measured_at_us"]) == (4, (BEGIN_S + 600) * US)
    assert not rejects(found)


def test_older_gauges_of_nccl_inspector_are_collectives(tmp_path: Path) -> None:
    labels = {
        "slurm_job": "4711",
        "comm_id": "0xab",
        "rank": "2",
        "nranks": "8",
        "collective": "AllGather",
        "coll_sn": "17",
    }
    times = [BEGIN_S + 30 * i for i in range(4)]
    found = answer(
        tmp_path,
        series("nccl_bus_bandwidth_gbs", [(t, 320.5) for t in times], **labels),
        series("nccl_collective_exec_time_microseconds", [(t, 912) for t in times], **labels),
        series("nccl_bus_bandwidth_gbs", [(times[0], 1)], coll_sn="1"),
    )
    [row] = rows(found, "collectives")
    assert (row["job_id"], row["comm_id"], row["op"]) == ("4711", "0xab", "all_gather")
    assert (row["seq"], row["rank"], row["n_ranks"]) == (17, 2, 8)
    assert (row["busbw_gb_per_s"], row["duration_us"]) == (320.5, 912)
    assert [reason for _, reason in rejects(found)] != []


def test_counters_of_ports_that_begin_again_are_told(tmp_path: Path) -> None:
    port = {"device": "mlx5_0", "port": "1", "instance": "node-a:9100"}
    values = [5, 9, 14, 3, 8, 2]
    found = answer(
        tmp_path,
        *(
            series(
                f"node_infiniband_port_data_{way}_bytes_total",
                [(BEGIN_S + 15 * i, v) for i, v in enumerate(values)],
                **port,
            )
            for way in ("received", "transmitted")
        ),
    )
    assert "counters of ports began again 2 times" in notes(found)
    assert [r["received_bytes"] for r in rows(found, "port_samples")] == values
