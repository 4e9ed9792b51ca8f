"""Scraping an exporter over its socket: each sample once, at its moment; what is lost is marked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from steptax.app.errors import InputError, UserError
from steptax.app.lake import Lake
from steptax.app.views.devices.sampling import sample_gaps
from steptax.app.views.workspace import open_workspace
from steptax.app.watch import Refused, Stored
from steptax.app.watch_scrape import ScrapeWatch
from steptax.connectors.base import Options
from steptax.connectors.prometheus.exporter import Exporter, metrics_of

BEGIN_S = 1_746_000_000
US = 1_000_000


@dataclass
class Node:
    """An exporter of two cards on a free port; ``power_w`` moves with every answer."""

    token: str | None = None
    text: str | None = None
    now_s: float = BEGIN_S
    asked: list[str] = field(default_factory=list)
    _port: int = 0
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://localhost:{self._port}"

    def metrics(self) -> str:
        if self.text is not None:
            return self.text
        lines = ["# HELP DCGM_FI_DEV_POWER_USAGE Power.", "# TYPE DCGM_FI_DEV_POWER_USAGE gauge"]
        for k in range(2):
            labels = f'{{gpu="{k}",UUID="GPU-{k}",Hostname="node-a",pod="job-{k}"}}'
            lines.append(f"DCGM_FI_DEV_POWER_USAGE{labels} {600 + k + len(self.asked) % 7}")
            lines.append(f"DCGM_FI_DEV_XID_ERRORS{labels} 9223372036854775794")
        lines += ['node_infiniband_port_data_received_bytes_total{device="mlx5_0",port="1"} 18']
        return "\n".join([*lines, ""])

    def start(self) -> None:
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                node.asked.append(self.path)
                allowed = node.token in (None, self.headers.get("Authorization"))
                body = node.metrics().encode() if allowed else b"Unauthorized"
                self.send_response(200 if allowed else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def clock(self) -> float:
        return self.now_s


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    found = Node()
    monkeypatch.setitem(Exporter.__init__.__kwdefaults__, "sleep", lambda _s: None)
    found.start()
    try:
        yield found
    finally:
        found.stop()


def watch(tmp_path: Path, node: Node, kind: str = "dcgm") -> ScrapeWatch:
    lake = Lake(tmp_path / "lake", create=True)
    return ScrapeWatch(lake, kind, node.url, Options(), clock=node.clock)


def test_where_metrics_lie() -> None:
    assert metrics_of("http://h:9400") == ("http://h:9400/metrics", "h")
    assert metrics_of("https://u:secret@h/own?x=1") == ("https://h/own?x=1", "h")
    with pytest.raises(InputError, match="address of an exporter") as caught:
        metrics_of("ftp://u:secret@h/")
    assert "secret" not in str(caught.value)


def test_every_look_is_a_sample_of_its_moment(tmp_path: Path, node: Node) -> None:
    one = watch(tmp_path, node)
    notes: list[str] = []
    for _ in range(4):
        [found] = one.look()
        assert isinstance(found, Stored)
        notes += found.result.notes
        node.now_s += 15
    rows = one.lake.read("device_samples").to_pylist()
    assert sorted((r["gpu_uuid"], r["ts_us"] // US - BEGIN_S) for r in rows) == [
        (f"GPU-{k}", 15 * i) for k in range(2) for i in range(4)
    ]
    assert {r["host"] for r in rows} == {"node-a"}
    assert all(r["xid"] is None for r in rows)
    assert set(node.asked) == {"/metrics"}
    # What is to be said of every scrape is said once.
    assert len(notes) == len(set(notes)) == 1


def test_ports_of_a_node_are_of_the_host_in_the_address(tmp_path: Path, node: Node) -> None:
    one = watch(tmp_path, node, "node-exporter")
    list(one.look())
    [row] = one.lake.read("port_samples").to_pylist()
    assert (row["host"], row["device"], row["received_bytes"]) == ("localhost", "mlx5_0", 18)


def test_what_was_lost_in_an_outage_is_marked_and_nothing_repeated(
    tmp_path: Path, node: Node
) -> None:
    one = watch(tmp_path, node)
    told: list[Any] = []
    for look in range(36):
        if look == 12:
            node.stop()
        if look == 24:
            node.start()
        told += one.look()
        node.now_s += 15
    # Said once, not twelve times.
    assert [type(found) for found in told].count(Refused) == 1
    rows = one.lake.read("device_samples").to_pylist()
    assert len(rows) == 2 * 24
    ws = open_workspace(tmp_path / "lake")
    [gap] = sample_gaps(ws, now_us=round(node.now_s * US))
    assert gap.start_us // US - BEGIN_S == 11 * 15
    assert gap.end_us // US - BEGIN_S == 24 * 15
    assert (gap.devices, gap.is_open) == (2, False)


def test_what_is_no_exporter_is_said(tmp_path: Path, node: Node) -> None:
    one = watch(tmp_path, node)
    node.text = "<html>a proxy</html>"
    [found] = one.look()
    assert isinstance(found, Refused)
    assert "holds no metric of this kind" in found.error.message
    assert list(one.look()) == []
    with pytest.raises(InputError, match="holds no metric"):
        list(one.look(settled=True))
    node.text = None
    assert [type(f) for f in one.look()] == [Stored]


def test_a_token_is_given(tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.token = "Bearer abc"
    [found] = watch(tmp_path, node).look()
    assert isinstance(found, Refused)
    assert "answers 401 (Unauthorized)" in found.error.message
    monkeypatch.setenv("PROMETHEUS_TOKEN", "abc")
    assert [type(f) for f in watch(tmp_path, node).look()] == [Stored]


def test_the_commands(steptax: Any, node: Node, tmp_path: Path) -> None:
    assert steptax("watch", "dcgm", node.url, "--once")["total"] == {"device_samples": 2}
    told = steptax("ingest", "dcgm", f"{node.url}/metrics")
    assert told["tables"]["device_samples"]["accepted"] == 2
    assert steptax("watch", "steps", node.url, "--once", fails=2)["hint"].startswith("kinds that")
    with pytest.raises(UserError, match="prometheus is not followed"):
        watch(tmp_path, node, "prometheus")
