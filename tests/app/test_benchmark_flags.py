"""A benchmark of nothing is refused at its flag, and prints no figure."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib import import_module

import pytest

from steptax.benchmarks.product.collector import end_nodes


@pytest.mark.parametrize(
    "line",
    [
        "cost --gpus 0",
        "cost --gpus -5",
        "cost --gpus",
        "cost --step-s 0",
        "cost --step-s nan",
        "device_week --days 0",
        "device_week --devices 0",
        "fault_real --steps 0",
        "faults --times 0",
        "fleet_year --jobs 0",
        "focus --rows 0",
        "ingest --kinds abacus",
        "ingest --mib -1",
        "ingest --rows 0",
        "kills --kills 0",
        "kineto --mib inf",
        "kineto --peer /no/such/python",
        "kineto /no/such/trace.json",
        "nvml_agent --devices 0",
        "outage --away 0",
        "scale --ranks 0",
        "scale --steps -1",
        "sessions --sessions 0",
        "sessions --seconds x",
        "table --only",
    ],
)
def test_a_flag_that_asks_for_nothing_is_named(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *words = line.split()
    monkeypatch.setattr(sys, "argv", [name, *words])
    with pytest.raises(SystemExit) as left:
        import_module(f"steptax.benchmarks.product.{name}").main()
    printed = capsys.readouterr()
    assert left.value.code == 2
    assert printed.out == ""
    said = printed.err.splitlines()[-1]
    assert "error: " in said
    assert words[0] in said or words[-1] in said


def test_a_benchmark_that_is_broken_off_leaves_no_node_behind() -> None:
    nodes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for code in ("import time; time.sleep(600)", "")
    ]
    nodes[1].wait()
    end_nodes(nodes)
    assert [process.returncode for process in nodes] == [-signal.SIGKILL, 0]
    for process in nodes:
        assert process.stdout is not None
        process.stdout.close()
