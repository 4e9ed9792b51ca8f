"""Outputs of nvidia-smi and rocm-smi, real ones and each form made by hand."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from steptax.app.errors import InputError
from steptax.app.schema import Reject
from steptax.connectors.base import Options
from steptax.connectors.registry import connector

Shared = Callable[[str], Path]
MIB = 1 << 20


def read(
    kind: str, path: Path, **options: Any
) -> tuple[list[dict[str, Any]], list[Reject], list[str]]:
    batches = list(connector(kind).read(path, Options(**options)))
    rows = [
        {name: value for name, value in row.items() if value is not None}
        for batch in batches
        for row in batch.rows.to_pylist()
    ]
    rejects = [reject for batch in batches for reject in batch.rejects]
    return rows, rejects, [note for batch in batches for note in batch.notes]


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


# -- nvidia-smi -q -x ------------------------------------------------------------------------

#: Read off the files by eye; what is not here is "N/A" there or is not printed.
XML = {
    "a100-sxm4-v12.xml": {
        "gpu_uuid": "GPU-513536b6-7d19-9063-b049-1e69664bb298",
        "ts_us": 1691149470000000,  # Fri Aug  4 11:44:30 2023
        "memory_used_bytes": 50 * MIB,
        "memory_total_bytes": 81920 * MIB,
        "power_w": 67.03,
        "power_limit_w": 500.0,
        "temperature_c": 27.0,
        "memory_temperature_c": 44.0,
        "sm_clock_mhz": 1275.0,
        "memory_clock_mhz": 1593.0,
        "throttle_reasons": 0,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "pcie_gen": 4,
        "pcie_width": 16,
        "pcie_gen_max": 4,
        "pcie_width_max": 16,
        "gpu_model": "NVIDIA A100-SXM4-80GB",
        "mig_enabled": True,
        "processes": 0,
    },
    "tesla-t4.xml": {
        "gpu_uuid": "GPU-d37e67a5-91dd-3774-a5cb-99096249601a",
        "ts_us": 1682353359000000,  # Mon Apr 24 16:22:39 2023
        "util_ratio": 0.0,
        "memory_used_bytes": 1032 * MIB,
        "memory_total_bytes": 15360 * MIB,
        "power_w": 26.78,
        "power_limit_w": 70.0,
        "temperature_c": 40.0,
        "sm_clock_mhz": 585.0,
        "memory_clock_mhz": 5000.0,
        "throttle_reasons": 0,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "pcie_gen": 3,
        "pcie_width": 8,
        "pcie_gen_max": 3,
        "pcie_width_max": 16,
        "gpu_model": "Tesla T4",
        "processes": 1,  # python; Xorg is graphics
    },
    "rtx-3080-v13.xml": {
        "gpu_uuid": "GPU-19d6d965-2acc-f646-00f8-4c76979aabb4",
        "ts_us": 1775816581000000,  # Fri Apr 10 10:23:01 2026
        "util_ratio": 0.65,
        "memory_used_bytes": 9184 * MIB,
        "memory_total_bytes": 10240 * MIB,
        "power_w": 139.62,
        "power_limit_w": 320.0,
        "temperature_c": 27.0,
        "sm_clock_mhz": 1950.0,
        "memory_clock_mhz": 9251.0,
        "throttle_reasons": 0,
        "pcie_gen": 4,
        "pcie_width": 16,
        "pcie_gen_max": 4,
        "pcie_width_max": 16,
        "gpu_model": "NVIDIA GeForce RTX 3080",
        "processes": 0,
    },
}


@pytest.mark.parametrize("name", XML)
def test_real_xml(shared: Shared, name: str) -> None:
    rows, rejects, notes = read("nvidia-smi", shared(f"connectors/nvidia_smi/{name}"))
    assert rejects == []
    assert len(rows) == 1
    assert rows[0] == XML[name] | {"host": Path(name).stem, "source_row": 8}
    assert any("taken as UTC" in note for note in notes)


def test_utilisation_of_a_device_split_by_mig_is_unknown_and_not_idle(shared: Shared) -> None:
    path = shared("connectors/nvidia_smi/a100-sxm4-v12.xml")
    rows, _, notes = read("nvidia-smi", path)
    assert "util_ratio" not in rows[0]
    assert any("util_ratio" in note for note in notes)


LOG = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
<timestamp>Fri Aug  4 11:44:30 2023</timestamp>
<gpu id="00000000:01:00.0"><uuid>GPU-one</uuid>
<clocks_event_reasons>
<clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
<clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
</clocks_event_reasons>
<remapped_rows><remapped_row_corr>2</remapped_row_corr><remapped_row_unc>1</remapped_row_unc>
</remapped_rows>
<ecc_errors><volatile><sram_correctable>1</sram_correctable><dram_correctable>4</dram_correctable>
<sram_uncorrectable_parity>2</sram_uncorrectable_parity>
<sram_uncorrectable_secded>3</sram_uncorrectable_secded></volatile></ecc_errors>
<gpu_power_readings><power_draw>700.5 W</power_draw></gpu_power_readings></gpu>
<gpu id="00000000:02:00.0"><uuid>GPU-two</uuid>
<utilization><gpu_util>Unknown Error</gpu_util></utilization></gpu>
</nvidia_smi_log>
"""


def test_reasons_errors_and_faults_of_xml(tmp_path: Path) -> None:
    rows, rejects, _ = read("nvidia-smi", written(tmp_path, "n1.xml", LOG))
    assert rejects == []
    first, second = rows
    assert first["throttle_reasons"] == 0x4 | 0x40
    assert first["remapped_rows"] == 3
    assert (first["ecc_corrected"], first["ecc_uncorrected"]) == (5, 5)
    assert first["power_w"] == 700.5
    assert second["health"] == "unknown error"
    assert "util_ratio" not in second


def test_several_documents_in_one_file_and_a_cut_one(tmp_path: Path) -> None:
    later = LOG.replace("11:44:30", "11:44:31")
    path = written(tmp_path, "loop.xml", LOG + later + LOG[: LOG.index('<gpu id="00000000:02')])
    rows, rejects, _ = read("nvidia-smi", path)
    assert [row["gpu_uuid"] for row in rows] == ["GPU-one", "GPU-two"] * 2 + ["GPU-one"]
    assert rows[2]["ts_us"] - rows[0]["ts_us"] == 1_000_000
    assert len(rejects) == 1
    assert "whole XML document" in rejects[0].reason
    assert rejects[0].row == 2 * LOG.count("\n") + LOG[: LOG.index('<gpu id="00000000:02')].count(
        "\n"
    )


def test_entities_are_never_expanded(tmp_path: Path) -> None:
    secret = written(tmp_path, "secret", "GPU-secret")
    lolz = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
    for declared, used in (
        (f'<!ENTITY x SYSTEM "{secret.as_uri()}">', "&x;"),
        (f'<!ENTITY l0 "lol">{lolz}', "&l11;"),
        (f'<!ENTITY % p SYSTEM "{secret.as_uri()}"> %p;', ""),
    ):
        text = LOG.replace('SYSTEM "nvsmi_device_v12.dtd">', f"[{declared}]>").replace(
            "GPU-one", used or "GPU-one"
        )
        with pytest.raises(InputError, match="declares entities"):
            read("nvidia-smi", written(tmp_path, "evil.xml", text))


DMON = (
    "#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk     fb\n"
    "#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %    MHz    MHz     MB\n"
    " 20260301   10:00:00      0    655     64     71     98     40   2619   1755  61440\n"
    " 20260301   10:00:00      1      -     51      -      -      -   2619   1755      3\n"
    " 20260301   10:00:01      0    655     64\n"
)
BARE = (
    "NVIDIA L4, 33, 0 %, 0 MiB, 23034 MiB\n2026-03-20T12:32:11+00:00 alive\n"
    "NVIDIA L4, 34, 7 %, 0 MiB, 23034 MiB\n2026-03-20T12:33:11+00:00 alive\n"
)


@pytest.mark.parametrize("text", [LOG, DMON, BARE], ids=["xml", "dmon", "bare"])
def test_damaged_forms_are_read_or_refused(tmp_path: Path, text: str) -> None:
    data, path = text.encode(), tmp_path / "damaged.txt"
    read_some = 0
    for seed in range(int(os.environ.get("STEPTAX_FUZZ_INPUTS", "1000"))):
        dice = random.Random(seed)
        out = bytearray(data)
        for _ in range(dice.choice((1, 2, 8, 60))):
            out[dice.randrange(len(out))] = dice.randrange(256)
        path.write_bytes(bytes(out[: dice.choice((len(out), dice.randrange(1, len(out)))) :]))
        refused = None
        try:
            rows, rejects, _ = read("nvidia-smi", path)
        except InputError as error:
            refused = error
        if refused is not None:
            assert str(path) in (refused.where or "")
            continue
        assert rows or rejects
        assert all(reject.row is not None and reject.row >= 1 for reject in rejects)
        read_some += bool(rows)
    assert read_some


# -- nvidia-smi --query-gpu ------------------------------------------------------------------


def test_real_lines_without_header_between_lines_of_a_probe(shared: Shared) -> None:
    path = shared("connectors/nvidia_smi/csv_noheader_l4_with_probe_lines.txt")
    rows, rejects, notes = read("nvidia-smi", path)
    always = {
        "host": path.stem,
        "gpu_uuid": "place 0",
        "gpu_model": "NVIDIA L4",
        "util_ratio": 0.0,
        "memory_used_bytes": 0,
        "memory_total_bytes": 23034 * MIB,
    }
    assert rows == [
        # 2026-03-20T12:32:11+00:00 and a minute later: the line of the probe ends each round.
        always | {"ts_us": 1774009931000000, "source_row": 1},
        always | {"ts_us": 1774009991000000, "source_row": 3},
    ]
    assert [(reject.row, reject.field) for reject in rejects] == [(5, "timestamp")]
    assert any("without a UUID" in note for note in notes)
    named = "name,temperature.gpu,utilization.gpu,memory.used,memory.total"
    rows, _, _ = read("nvidia-smi", path, mapping={"columns": named})
    assert [row["temperature_c"] for row in rows] == [33.0, 33.0]
    # A person says when the last row was read, which no line dates.
    rows, rejects, _ = read("nvidia-smi", path, extra={"at": "2026-03-20T12:34:11Z"})
    assert not rejects
    assert [row["ts_us"] for row in rows] == [
        1774009931000000,
        1774009991000000,
        1774010051000000,
    ]


def test_case_08_words_are_missing_and_not_zero(shared: Shared) -> None:
    folder = shared("cases/08-smi-na-lost-mig")
    want = orjson.loads((folder / "expected.md").read_text().split("```json")[1].split("```")[0])
    rows, rejects, _ = read("nvidia-smi", folder / "smi.csv")
    assert rejects == []
    assert len(rows) == want["rows"]
    lost = [row for row in rows if row.get("health") == "lost"]
    assert (len(lost), len(rows) - len(lost)) == (want["gpus_lost"], want["gpus_present"])
    use = [row["util_ratio"] for row in rows if "util_ratio" in row]
    assert len(use) == want["util_reporting"]
    assert 100 * sum(use) / len(use) == pytest.approx(want["mean_util_of_reporting"])
    power = [row["power_w"] for row in rows if "power_w" in row]
    assert sum(power) / len(power) == pytest.approx(want["mean_power_w"], abs=1e-3)
    flags = {str(row["gpu_index"]): row["health"] for row in rows if "health" in row}
    assert flags == want["health_flags"]
    idle = [row["gpu_index"] for row in rows if row.get("util_ratio") == 0]
    assert idle == want["idle_gpus"]
    assert [r["gpu_index"] for r in rows if "util_ratio" not in r] == want["not_idle_unknown"]
    assert [row["mig_enabled"] for row in rows if "mig_enabled" in row].count(True) == 1


def test_units_headers_that_change_and_values_that_cannot_be(tmp_path: Path) -> None:
    text = (
        "timestamp, uuid, utilization.gpu [%], power.draw [W], clocks_throttle_reasons.active\n"
        "2026/03/01 10:00:00.250, GPU-a, 50, 4294967295, 0x0000000000000021\n"
        "\n"
        "timestamp, uuid, memory.used [MiB], clocks_event_reasons.gpu_idle, "
        "clocks_event_reasons.sw_power_cap\n"
        "2026/03/01 10:00:01.250, GPU-a, 2 GiB, Not Active, Active\n"
        "2026/03/01 10:00:02.250, GPU-a, 7 parsecs, Active, Not Active\n"
        "yesterday, GPU-a, 1, Active, Active\n"
        "No devices were found\n"
    )
    rows, rejects, notes = read("nvidia-smi", written(tmp_path, "n1.csv", text), extra={})
    assert [row["throttle_reasons"] for row in rows] == [0x21, 0x4]
    assert rows[0]["util_ratio"] == 0.5
    everything = written(
        tmp_path,
        "n2.csv",
        "timestamp, uuid, clocks_event_reasons.active\n"
        "2026/03/01 10:00:00.250, GPU-a, 0xffffffffffffffff\n",
    )
    told, _, said = read("nvidia-smi", everything)
    assert "throttle_reasons" not in told[0]
    assert any("throttle_reasons: 1 values that no device can have" in note for note in said)
    assert "power_w" not in rows[0]
    assert rows[0]["ts_us"] % 1_000_000 == 250_000
    assert rows[1]["memory_used_bytes"] == 2 << 30
    assert [(reject.row, reject.field) for reject in rejects] == [
        (6, "memory_used_bytes"),
        (7, "timestamp"),
        (8, None),
    ]
    assert any("power_w: 1 values that no device can have" in note for note in notes)


def test_zone_host_and_moment_that_the_person_names(tmp_path: Path) -> None:
    text = "timestamp, uuid, power.draw [W]\n2026/03/01 10:00:00.000, GPU-a, 300.00 W\n"
    path = written(tmp_path, "n1.csv", text)
    plain, _, _ = read("nvidia-smi", path)
    rows, _, notes = read("nvidia-smi", path, extra={"timezone": "Europe/Berlin", "host": "node-7"})
    assert rows[0]["ts_us"] == plain[0]["ts_us"] - 3_600_000_000
    assert (plain[0]["host"], rows[0]["host"]) == ("n1", "node-7")
    assert notes == []
    dateless = written(tmp_path, "n2.csv", "uuid, power.draw [W]\nGPU-a, 300.00 W\n")
    rows, _, _ = read("nvidia-smi", dateless, extra={"at": "2026-03-01T10:00:00Z"})
    assert rows[0]["ts_us"] == plain[0]["ts_us"]


def test_dmon(tmp_path: Path) -> None:
    text = DMON
    rows, rejects, notes = read("nvidia-smi", written(tmp_path, "n1.log", text))
    assert rows[0] | {"source_row": 0} == {
        "host": "n1",
        "gpu_uuid": "index 0",
        "gpu_index": 0,
        "ts_us": 1772359200000000,
        "power_w": 655.0,
        "temperature_c": 64.0,
        "memory_temperature_c": 71.0,
        "util_ratio": 0.98,
        "memory_clock_mhz": 2619.0,
        "sm_clock_mhz": 1755.0,
        "memory_used_bytes": 61440 * MIB,
        "source_row": 0,
    }
    assert "util_ratio" not in rows[1]
    assert "power_w" not in rows[1]
    assert [reject.row for reject in rejects] == [5]
    assert any("without a UUID" in note for note in notes)
    timeless = text.replace("#Date       Time    ", "#").replace(" 20260301   10:00:00", " ")
    rows, rejects, _ = read("nvidia-smi", written(tmp_path, "n2.log", timeless))
    assert rows == []
    assert "-o DT" in rejects[0].reason


@pytest.mark.parametrize("text", ["hello\nworld\n", "step,rank,duration_us\n1,0,5\n", "1,2,3\n"])
def test_what_is_no_output_of_nvidia_smi_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="no output of nvidia-smi"):
        read("nvidia-smi", written(tmp_path, "x.csv", text))


def test_a_file_that_grows_is_followed(tmp_path: Path, steptax: Callable[..., Any]) -> None:
    path = written(
        tmp_path,
        "node-3.csv",
        "timestamp, uuid, power.draw [W]\n2026/03/01 10:00:00.000, GPU-a, 300.00 W\n",
    )
    first = steptax("watch", "nvidia-smi", path, "--once")
    assert first["total"] == {"device_samples": 1}
    with path.open("a") as file:
        file.write("2026/03/01 10:00:01.000, GPU-a, 301.00 W\n")
    assert steptax("watch", "nvidia-smi", path, "--once")["total"] == {"device_samples": 1}


# -- rocm-smi and amd-smi --------------------------------------------------------------------


def test_real_rocm_smi(shared: Shared) -> None:
    rows, rejects, notes = read("rocm-smi", shared("connectors/rocm_smi/mi100_rocm602.json"))
    assert rejects == []
    assert [row["gpu_uuid"] for row in rows] == [
        "0x79ccd55167a2124a",
        "0x4edfb117a17a07d",
        "0xd4a9ec48d03d261d",
        "0x1b9dd972253c3736",
    ]
    assert [row["power_w"] for row in rows] == [36.0, 44.0, 43.0, 39.0]
    assert [row["temperature_c"] for row in rows] == [55.0, 58.0, 57.0, 53.0]
    assert {row["sm_clock_mhz"] for row in rows} == {300.0}
    assert {row["memory_total_bytes"] for row in rows} == {34342961152}
    assert {(row["pcie_gen"], row["pcie_width"]) for row in rows} == {(4, 16)}
    assert {row["gpu_model"] for row in rows} == {"Arcturus GL-XL [Instinct MI100]"}
    assert any("holds no time" in note for note in notes)
    rows, _, _ = read("rocm-smi", shared("connectors/rocm_smi/vega-20-WKS-GL-XE.json"))
    assert [(r["power_w"], r["sm_clock_mhz"], r["memory_used_bytes"]) for r in rows] == [
        (26.0, 1725.0, 10850304)
    ]


def test_real_amd_smi_static_tells_devices_and_no_readings(shared: Shared) -> None:
    rows, rejects, notes = read("rocm-smi", shared("connectors/rocm_smi/ceems_amd_smi_static.json"))
    assert rejects == []
    assert [row["gpu_index"] for row in rows] == list(range(12))
    assert len({row["gpu_uuid"] for row in rows}) == 12
    assert not any("power_w" in row or "util_ratio" in row for row in rows)
    assert any("no readings in it" in note for note in notes)


def test_amd_smi_metric(tmp_path: Path) -> None:
    said = [
        {
            "gpu": 0,
            "usage": {"gfx_activity": {"value": 87, "unit": "%"}},
            "power": {"socket_power": {"value": 550, "unit": "W"}},
            "clock": {"gfx_0": {"clk": {"value": 2100, "unit": "MHz"}}},
            "temperature": {"edge": "N/A", "hotspot": {"value": 63, "unit": "C"}},
            "mem_usage": {"used_vram": {"value": 283, "unit": "MB"}},
            "ecc": {"total_correctable_count": 2, "total_uncorrectable_count": 0},
            "energy": {"total_energy_consumption": {"value": 1234.5, "unit": "J"}},
        },
        {"gpu": 1, "usage": "N/A", "power": {"socket_power": {"value": 5, "unit": "fathoms"}}},
    ]
    path = tmp_path / "n1.json"
    for body in (said, {"gpu_data": said}):
        path.write_bytes(orjson.dumps(body))
        rows, rejects, _ = read("rocm-smi", path)
        assert len(rows) == 1
        row = rows[0]
        assert (row["util_ratio"], row["power_w"], row["sm_clock_mhz"]) == (0.87, 550.0, 2100.0)
        assert (row["temperature_c"], row["memory_used_bytes"]) == (63.0, 283 * MIB)
        assert (row["ecc_corrected"], row["ecc_uncorrected"], row["energy_j"]) == (2, 0, 1234.5)
        assert [(reject.row, reject.field) for reject in rejects] == [(2, "power_w")]


def test_amd_smi_tells_what_holds_a_clock_back(tmp_path: Path) -> None:
    quiet = dict.fromkeys(("prochot_violation_status", "ppt_violation_status"), "NOT ACTIVE")
    said: list[dict[str, Any]] = [
        # an MI300 at its power limit; one whose memory is hot; newer: a word per partition and die
        {"throttle": quiet | {"ppt_violation_status": "ACTIVE"}},
        {"throttle": quiet | {"hbm_thermal_violation_status": "ACTIVE"}},
        {
            "throttle": quiet
            | {
                "gfx_clk_below_host_limit_thermal_violation_status": {
                    "xcp_0": ["NOT ACTIVE", "ACTIVE", "N/A"],
                    "xcp_1": ["N/A", "N/A", "N/A"],
                }
            }
        },
        {"throttle": quiet},
        # a Radeon says N/A to each, and only that something holds it back
        {"throttle": dict.fromkeys(quiet, "N/A"), "power": {"throttle_status": "THROTTLED"}},
        {"throttle": "N/A"},
        {},
    ]
    body = [
        {"gpu": i, "usage": {"gfx_activity": {"value": 9, "unit": "%"}}} | one
        for i, one in enumerate(said)
    ]
    path = tmp_path / "n1.json"
    path.write_bytes(orjson.dumps(body))
    rows, rejects, _ = read("rocm-smi", path)
    assert rejects == []
    found = [row.get("throttle_reasons") for row in rows]
    assert found == [0x4, 0x20, 0x20, 0, None, None, None]


@pytest.mark.parametrize(
    ("speed", "generation"),
    [(2.5, 1), (16, 4), (32.0, 5), (7, None), ("N/A", None)],
)
def test_amd_smi_tells_the_pcie_link(tmp_path: Path, speed: Any, generation: int | None) -> None:
    told = speed if isinstance(speed, str) else {"value": speed, "unit": "GT/s"}
    path = tmp_path / "n1.json"
    path.write_bytes(orjson.dumps([{"gpu": 0, "pcie": {"width": 8, "speed": told}}]))
    rows, rejects, _ = read("rocm-smi", path)
    assert rejects == []
    assert (rows[0]["pcie_width"], rows[0].get("pcie_gen")) == (8, generation)


@pytest.mark.parametrize(
    ("pending", "failed", "health"),
    [
        ("No", "No", None),
        ("Yes", "No", "memory rows wait for a reset to be remapped"),
        ("Yes", "Yes", "remapping of memory rows failed"),
        ("[N/A]", "[N/A]", None),
    ],
)
def test_memory_that_could_not_be_remapped_is_told(
    tmp_path: Path, pending: str, failed: str, health: str | None
) -> None:
    csv = written(
        tmp_path,
        "n1.csv",
        "timestamp, uuid, remapped_rows.correctable, remapped_rows.uncorrectable, "
        "remapped_rows.pending, remapped_rows.failure\n"
        f"2025/06/02 10:00:00.000, GPU-cccc0000, 1, 2, {pending}, {failed}\n",
    )
    xml = written(
        tmp_path,
        "n1.xml",
        '<?xml version="1.0" ?><nvidia_smi_log><timestamp>Fri Aug  4 11:44:30 2023</timestamp>'
        '<gpu id="00000000:01:00.0"><uuid>GPU-cccc0000</uuid><remapped_rows>'
        "<remapped_row_corr>1</remapped_row_corr><remapped_row_unc>2</remapped_row_unc>"
        f"<remapped_row_pending>{pending}</remapped_row_pending>"
        f"<remapped_row_failure>{failed}</remapped_row_failure>"
        "</remapped_rows></gpu></nvidia_smi_log>",
    )
    for path in (csv, xml):
        (row,), rejects, _ = read("nvidia-smi", path)
        assert rejects == []
        assert row["remapped_rows"] == 3
        assert row.get("health") == health
