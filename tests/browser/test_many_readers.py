"""Several dashboards and many tabs on one lake that somebody is writing to."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Page, expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import connect

from steptax.app.lake import Lake
from steptax.benchmarks.product.sessions import ask
from tests.patience import until

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOLD = """
import sys
from pathlib import Path
from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.connectors.base import Options
lake = Lake(sys.argv[1], create=True)
for file in sys.argv[2:]:
    ingest_file(lake, "jobs", Path(file), Options())
    print("loaded", flush=True)
    sys.stdin.readline()
"""


def test_case_16_a_loader_never_stops_two_dashboards(
    shared: Callable[[str], Path],
    tmp_path: Path,
    serve: Callable[..., str],
    page: Page,
) -> None:
    lake = tmp_path / "lake"
    seed = shared("cases/16-duckdb-lock/seed.csv")
    # Large enough to be killed in the middle of.
    second = tmp_path / "second.csv"
    rows = "".join(f"k{i},8,1\n" for i in range(2_000_000))
    second.write_text("job_id,gpus,hours\n" + rows)
    loader = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lake), str(seed), str(second)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert loader.stdout is not None
        assert loader.stdout.readline() == b"loaded\n"
        addresses = [serve(lake) for _ in range(2)]
        for _ in range(5):
            for address in addresses:
                page.goto(f"{address}/")
                expect(page.locator(".st-key-kpis")).to_contain_text("4,800")
                expect(page.locator(".stException")).to_have_count(0)
        assert loader.stdin is not None
        loader.stdin.write(b"\n")
        loader.stdin.flush()
        # Its parts are on the disk, and not yet visible.
        until(lambda: any(lake.rglob("tables/jobs/*part-*-1-*")), "the second load")
    finally:
        loader.send_signal(signal.SIGKILL)
        loader.communicate()
    assert Lake(lake).row_counts()["jobs"] == 200
    for address in addresses:
        page.goto(f"{address}/")
        expect(page.locator(".st-key-kpis")).to_contain_text("4,800")
        expect(page.locator(".stException")).to_have_count(0)
        page.goto(f"{address}/health")
        expect(page.get_by_text("200 rows from 1 source")).to_be_visible()


def resident_mb(port: int) -> float:
    """Resident memory of the server that listens on ``port``."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                if b"--server.port\0" + str(port).encode() + b"\0" in command:
                    status = (entry / "status").read_text()
                    return int(status.split("VmRSS:")[1].split()[0]) / 1024
            except (FileNotFoundError, ProcessLookupError):
                continue
    raise AssertionError(f"no server on port {port}")


def test_case_21_twenty_tabs_come_and_go(
    shared: Callable[[str], Path],
    tmp_path: Path,
    serve: Callable[..., str],
    browser: Browser,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = shared("cases/21-dashboard-under-load")
    spec = orjson.loads((folder / "series_spec.json").read_bytes())
    want = orjson.loads((folder / "expected.md").read_text().split("```json")[1].split("```")[0])
    ranks, steps = spec["ranks"], spec["steps"]
    generator = np.random.default_rng(spec["seed"])
    work_ms = generator.normal(spec["base_ms"], spec["noise_sd_ms"], (steps, ranks))
    for spike in spec["spikes"]:
        work_ms[spike["step"], spike["rank"]] = spike["ms"]
    lake = Lake(tmp_path / "lake", create=True)
    lake.append(
        "steps",
        pa.table(
            {
                "job_id": pa.repeat(pa.scalar("big"), work_ms.size),
                "attempt": pa.repeat(pa.scalar(0, pa.int32()), work_ms.size),
                "step": np.repeat(np.arange(steps), ranks),
                "rank": np.tile(np.arange(ranks, dtype=np.int32), steps),
                "duration_us": (work_ms * 1000).astype(np.int64).ravel(),
            }
        ),
        source="made",
    )
    address = serve(lake.root, STREAMLIT_SERVER_DISCONNECTED_SESSION_TTL="2")
    port = int(address.rpartition(":")[2])
    largest = 0
    seconds: list[float] = []

    # Tabs of one browser share what it keeps of the programs of the page, as a reader's do; each
    # has a session of its own on the server.
    context = browser.new_context(viewport={"width": 1440, "height": 900})

    def visit() -> Page:
        nonlocal largest
        tab = context.new_page()

        def received(socket: Any) -> None:
            def frame(payload: str | bytes) -> None:
                nonlocal largest
                largest = max(largest, len(payload))

            socket.on("framereceived", frame)

        tab.on("websocket", received)
        begin = time.monotonic()
        tab.goto(f"{address}/job?job=big&window=all")
        expect(tab.locator(".st-key-heat .js-plotly-plot").first).to_be_visible(timeout=180_000)
        seconds.append(time.monotonic() - begin)
        return tab

    async def tab_without_a_picture() -> None:
        """What the server has of a tab: its session, and what is sent to it."""
        socket_url = address.replace("http", "ws", 1) + "/_stcore/stream"
        async with connect(
            socket_url, origin=address, subprotocols=["streamlit"], max_size=None
        ) as socket:

            def received(message: ForwardMsg) -> None:
                nonlocal largest
                largest = max(largest, message.ByteSize())

            await ask(socket, "job", "big", None, received, more="&window=all")

    async def five_tabs() -> None:
        await asyncio.gather(*(tab_without_a_picture() for _ in range(5)))

    visit().close()
    time.sleep(6)
    warm_mb = resident_mb(port)
    # One of each five is drawn: drawing is the work of the browser, and has no part in the case.
    # The browser's driver has a loop of its own in this thread.
    with ThreadPoolExecutor(1) as aside:
        for _ in range(4):
            drawn = visit()
            aside.submit(lambda: asyncio.run(five_tabs())).result()
            drawn.close()
    time.sleep(10)
    after_mb = resident_mb(port)
    context.close()
    with capsys.disabled():
        print(  # noqa: T201 - the figures are for whoever runs this
            f"\n  24 tabs: {warm_mb:.0f} MB after one tab, {after_mb:.0f} MB after all; largest "
            f"message {largest / 1e6:.2f} MB; p95 {np.percentile(seconds[1:], 95):.1f} s"
        )
    assert largest < want["max_message_mb"] * 1e6
    assert after_mb < warm_mb * (1 + want["rss_growth_after_close_pct_max"] / 100)
