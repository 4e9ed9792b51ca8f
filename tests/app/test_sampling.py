"""Gaps between samples are marked, as long as they are there and no longer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from steptax.app.lake import Lake
from steptax.app.views.devices.sampling import gap_warnings, sample_gaps
from steptax.app.views.health import health_view
from steptax.app.views.workspace import Workspace, open_workspace

S = 1_000_000
BEGIN_S = 1_746_000_000


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    Lake(tmp_path / "lake", create=True)
    return open_workspace(tmp_path / "lake")


def add(ws: Workspace, seconds: Iterable[int], devices: int = 2, host: str = "node-a") -> None:
    """A sample of each device of ``host`` at each of ``seconds`` after the begin."""
    at = [s for s in seconds for _ in range(devices)]
    rows = pa.table(
        {
            "host": [host] * len(at),
            "gpu_uuid": [f"GPU-{host}-{k % devices}" for k in range(len(at))],
            "ts_us": [(BEGIN_S + s) * S for s in at],
            "power_w": [600.0 + s % 7 for s in at],
        }
    )
    ws.lake.append("device_samples", rows, source="t")


def found(ws: Workspace, now_s: int) -> list[tuple[int, int, int, int, bool]]:
    """From, until (seconds after the begin), devices, device-seconds, whether it goes on."""
    gaps = sample_gaps(ws, now_us=(BEGIN_S + now_s) * S)
    return [
        (
            gap.start_us // S - BEGIN_S,
            gap.end_us // S - BEGIN_S,
            gap.devices,
            gap.without_us // S,
            gap.is_open,
        )
        for gap in gaps
    ]


@pytest.mark.parametrize("every_s", [1, 15, 60])
def test_an_outage_is_one_gap_of_all_its_devices(ws: Workspace, every_s: int) -> None:
    for host in ("node-a", "node-b"):
        add(ws, range(0, 1201, every_s), host=host)
        add(ws, range(1800, 3001, every_s), host=host)
    assert found(ws, 3001) == [(1200, 1800, 4, 4 * 600, False)]
    [gap] = sample_gaps(ws, now_us=(BEGIN_S + 3001) * S)
    assert (gap.hosts, gap.where) == (2, "4 devices of node-a, node-b")


def test_what_is_caught_up_is_no_gap_any_more(ws: Workspace) -> None:
    add(ws, range(600))
    add(ws, range(1200, 1800))
    assert len(found(ws, 1800)) == 1
    add(ws, range(600, 900))
    assert found(ws, 1800) == [(899, 1200, 2, 602, False)]
    add(ws, range(900, 1200))
    assert found(ws, 1800) == []


def test_a_source_that_is_silent_now_is_told_and_an_old_one_is_not(ws: Workspace) -> None:
    add(ws, range(600))
    assert found(ws, 650) == []  # not late yet
    assert found(ws, 1259) == [(599, 1199, 2, 1200, True)]
    assert found(ws, 30 * 86_400) == []


def test_one_device_of_several(ws: Workspace) -> None:
    add(ws, range(1000), devices=8)
    add(ws, [s for s in range(1000) if not 300 <= s < 480], devices=1, host="node-b")
    assert found(ws, 1000) == [(299, 480, 1, 181, False)]


def test_samples_missing_within_a_minute(ws: Workspace) -> None:
    begin = -BEGIN_S % 60  # a whole minute
    add(ws, [begin + s for s in range(600) if not 250 <= s < 280], devices=1)
    [(start, end, devices, without, is_open)] = found(ws, begin + 600)
    assert (devices, without, is_open) == (1, 30, False)
    assert start <= begin + 249
    assert end >= begin + 280
    # It is known how much is missing and between which moments, and not where between them.
    [gap] = sample_gaps(ws, now_us=(BEGIN_S + begin + 600) * S)
    [said] = gap_warnings([gap])
    assert (gap.is_exact, gap.length_us) == (False, 30 * S)
    assert "The longest, 30 s of 1 device of node-a, lies between" in said
    assert "begins at" not in said
    # Single samples that are late or lost are none.
    add(ws, [begin + s for s in range(600) if s % 97], devices=1, host="node-b")
    assert len(found(ws, begin + 600)) == 1


def test_pages_and_commands_say_it(
    ws: Workspace, steptax: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    add(ws, range(600))
    add(ws, range(1200, 1800))
    view = health_view(ws, now_us=(BEGIN_S + 1800) * S)
    assert "device-hours in all: nothing is known of them" in view.warnings[0]
    assert "10 min of 2 devices of node-a, begins at" in view.warnings[0]
    told = steptax("health")
    assert [gap["without_us"] for gap in told["gaps"]] == [2 * 601 * S]


def test_without_samples_there_is_nothing_to_say(ws: Workspace) -> None:
    assert sample_gaps(ws, now_us=BEGIN_S * S) == ()
