"""Following a Prometheus server: every sample once, over outages and kills, none repeated."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
import requests

from steptax.app.cli import main
from steptax.app.commands.watch_teller import Teller
from steptax.app.compute.bill.device_time import stale_samples
from steptax.app.errors import InputError, UserError
from steptax.app.lake import Lake
from steptax.app.lake.ingest import IngestResult
from steptax.app.views.health import health_view
from steptax.app.views.workspace import open_workspace
from steptax.app.watch import Refused, Stored, Told
from steptax.app.watch_server import FIRST_S, SETTLE_S, ServerWatch
from steptax.connectors.base import Options
from steptax.connectors.prometheus.server import PrometheusServer
from tests.compute.device_rows import series as samples_of

BEGIN_S = 1_746_000_000
EVERY_S = 15
URL = "http://prometheus.example:9090"


@dataclass
class Cluster:
    """A card that is scraped every 15 s, the server that keeps it, and the time."""

    now_s: float = BEGIN_S + 600.0
    is_away: bool = False
    hung_from_s: float = float("inf")
    not_scraped: tuple[float, float] = (0, 0)
    asked: list[tuple[float, float]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    def scrapes(self, start_s: float, end_s: float) -> Iterator[int]:
        for at in range(BEGIN_S, int(min(end_s, self.now_s)) + 1, EVERY_S):
            if start_s < at and not self.not_scraped[0] <= at < self.not_scraped[1]:
                yield at

    def request(self, _method: str, _url: str, **given: Any) -> Any:
        if self.is_away:
            raise requests.ConnectionError("no route")
        end = float(given["data"]["time"])
        length = re.search(r"\[(\d+)ms\]$", given["data"]["query"])
        assert length is not None
        start = end - int(length[1]) / 1000
        self.asked.append((start, end))
        metrics = (("GPU_UTIL", 90), ("POWER_USAGE", 600), ("GPU_TEMP", 60))
        result = [
            {
                "metric": {
                    "__name__": f"DCGM_FI_DEV_{name}",
                    "UUID": "GPU-1",
                    "Hostname": "node-a",
                },
                "values": [
                    [at, str(base + int(min(at, self.hung_from_s)) % 7)]
                    for at in self.scrapes(start, end)
                ],
            }
            for name, base in metrics
        ]
        body = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        answer = requests.Response()
        answer.status_code = 200
        answer._content = orjson.dumps(body)
        return answer


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster()
    monkeypatch.setattr(requests, "request", found.request)
    monkeypatch.setitem(PrometheusServer.__init__.__kwdefaults__, "sleep", lambda _s: None)
    return found


def watch(tmp_path: Path, cluster: Cluster) -> ServerWatch:
    lake = Lake(tmp_path / "lake", create=True)
    return ServerWatch(lake, "prometheus", URL, Options(), clock=cluster.clock)


def times(tmp_path: Path) -> list[int]:
    found: list[int] = []
    for path in (tmp_path / "lake").rglob("*.parquet"):
        rows = pq.ParquetFile(path).read()
        if "ts_us" in rows.column_names:
            found += [ts // 1_000_000 for ts in rows["ts_us"].to_pylist()]
    return sorted(found)


def test_it_goes_on_from_where_it_stopped(tmp_path: Path, cluster: Cluster) -> None:
    one = watch(tmp_path, cluster)
    for _ in range(8):
        list(one.look())
        cluster.now_s += 20
    # Another process takes over.
    two = watch(tmp_path, cluster)
    list(two.look())
    assert times(tmp_path) == list(cluster.scrapes(0, cluster.now_s - SETTLE_S))
    ends = [end for _, end in cluster.asked]
    assert len(ends) == len(set(ends))


def test_it_catches_up_after_an_outage(tmp_path: Path, cluster: Cluster) -> None:
    one = watch(tmp_path, cluster)
    list(one.look())
    cluster.is_away = True
    told = []
    for _ in range(30):
        cluster.now_s += 60
        told += list(one.look())
    # Said once, not at every look.
    assert [type(found) for found in told] == [Refused]
    cluster.is_away = False
    cluster.now_s += 5
    found = list(one.look())
    assert found
    assert all(isinstance(f, Stored) for f in found)
    assert times(tmp_path) == list(cluster.scrapes(0, cluster.now_s - SETTLE_S))
    assert not list(one.look())


def test_what_was_never_scraped_is_marked(tmp_path: Path, cluster: Cluster) -> None:
    one = watch(tmp_path, cluster)
    list(one.look())
    cluster.not_scraped = (cluster.now_s, cluster.now_s + 400)
    cluster.now_s += 600
    notes = [n for f in one.look() if isinstance(f, Stored) for n in f.result.notes]
    assert any(" between samples, " in note for note in notes)
    assert times(tmp_path) == list(cluster.scrapes(0, cluster.now_s - SETTLE_S))


def test_no_value_of_a_hung_exporter_is_taken_as_fresh(tmp_path: Path, cluster: Cluster) -> None:
    one = watch(tmp_path, cluster)
    list(one.look())
    cluster.hung_from_s = cluster.now_s
    for _ in range(60):
        cluster.now_s += 30
        assert all(isinstance(found, Stored) for found in one.look())
    stored = one.lake.read("device_samples").to_pylist()
    again = [row for row in stored if row["ts_us"] > cluster.hung_from_s * 1_000_000]
    assert len(again) == 60 * 2 - SETTLE_S // EVERY_S
    samples = samples_of(stored)
    stale = samples.ts_us[stale_samples(samples)]
    assert stale.tolist() == sorted(row["ts_us"] for row in again)


def test_a_single_look_says_that_the_server_is_away(tmp_path: Path, cluster: Cluster) -> None:
    cluster.is_away = True
    with pytest.raises(InputError, match="does not answer"):
        list(watch(tmp_path, cluster).look(settled=True))


def test_the_first_look_takes_an_hour(tmp_path: Path, cluster: Cluster) -> None:
    cluster.now_s = BEGIN_S + 3 * FIRST_S
    list(watch(tmp_path, cluster).look())
    begin = cluster.now_s - SETTLE_S - FIRST_S
    assert times(tmp_path) == list(cluster.scrapes(begin, cluster.now_s - SETTLE_S))


def test_it_begins_where_it_is_told_to(tmp_path: Path, cluster: Cluster) -> None:
    begin = cluster.now_s - 120
    first_us = int(begin) * 1_000_000
    lake = Lake(tmp_path / "lake", create=True)
    one = ServerWatch(lake, "prometheus", URL, Options(), cluster.clock, first_us)
    assert all(isinstance(found, Stored) for found in one.look())
    assert times(tmp_path) == list(cluster.scrapes(begin, cluster.now_s - SETTLE_S))
    # Followed before, it goes on where it stopped, and says that.
    cluster.now_s += 60
    two = ServerWatch(lake, "prometheus", URL, Options(), cluster.clock, first_us)
    told, *rest = two.look()
    assert isinstance(told, Told)
    assert "--from does not count" in told.notes[0]
    assert all(isinstance(found, Stored) for found in rest)
    assert times(tmp_path) == list(cluster.scrapes(begin, cluster.now_s - SETTLE_S))


def test_time_before_the_first_scrape_is_neither_fault_nor_gap(
    tmp_path: Path, cluster: Cluster
) -> None:
    """Scraped for ten minutes of the hour that is asked for first."""
    one = watch(tmp_path, cluster)
    results = [found.result for found in one.look() if isinstance(found, Stored)]
    assert len(results) > 2
    assert not any(result.rejected for result in results)
    assert not any("gaps" in note for result in results for note in result.notes)
    # An outage of later, over several windows, is one.
    cluster.not_scraped = (cluster.now_s, cluster.now_s + 2700)
    cluster.now_s += 2850
    *_, last = one.look()
    assert isinstance(last, Stored)
    assert any(" between samples, " in note for note in last.result.notes)


def test_the_looks_at_an_address_are_one_source(tmp_path: Path, cluster: Cluster) -> None:
    one = watch(tmp_path, cluster)
    for _ in range(3):
        list(one.look())
        cluster.now_s += 60
    view = health_view(open_workspace(one.lake.root))
    (source,) = view.sources
    assert source.source == f"prometheus:{URL}"
    assert source.accepted == len(times(tmp_path))
    assert "from 1 source;" in view.sentence


def test_what_is_waited_for_is_said_again(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    teller = Teller(as_json=False, clock=lambda: now[0])
    full = InputError("cannot be stored: no space left", where="lake")
    teller.tell(Refused(Path("server"), full, waits=True))
    for _ in range(25):
        now[0] += 5.0
        teller.idle()
    said = capsys.readouterr().out
    assert said.count("not read: cannot be stored") == 1
    assert said.count("still waiting: cannot be stored: no space left") == 2
    assert "nothing new" not in said
    stored = IngestResult("a", "server", False, {"device_samples": 1}, {}, {}, {}, (), ())
    teller.tell(Stored(Path("server"), stored, 0, 1.0))
    for _ in range(25):
        now[0] += 5.0
        teller.idle()
    said = capsys.readouterr().out
    assert said.count("nothing new; waiting") == 1
    assert "still waiting" not in said


def test_what_keeps_nothing_has_no_begin(steptax: Any, tmp_path: Path) -> None:
    lake = ("--lake", tmp_path / "lake", "--once", "--from", "-1h")
    for source in (("dcgm", "http://dcgm.example:9400"), ("steps", tmp_path), ("nvml",)):
        failed = steptax("watch", *source, *lake, fails=2)
        assert failed["where"] == "--from"


def test_one_at_a_time_and_of_its_kind(tmp_path: Path, cluster: Cluster) -> None:
    one, two = watch(tmp_path, cluster), watch(tmp_path, cluster)
    with one.alone(), pytest.raises(UserError, match="another watch"), two.alone():
        pass
    with pytest.raises(UserError, match="steps is not followed at an address"):
        ServerWatch(one.lake, "steps", URL, Options())


def test_the_command(
    tmp_path: Path,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "steptax.app.commands.watch.ServerWatch", partial(ServerWatch, clock=cluster.clock)
    )

    def run() -> tuple[Any, str]:
        arguments = ["watch", "prometheus", URL, "--once", "--lake", str(tmp_path / "lake")]
        monkeypatch.setattr(sys, "argv", ["steptax", *arguments, "--json"])
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code, capsys.readouterr().out

    code, told = run()
    assert code == 0
    wanted = len(list(cluster.scrapes(0, cluster.now_s - SETTLE_S)))
    assert orjson.loads(told.splitlines()[-1])["data"]["total"] == {"device_samples": wanted}
    cluster.is_away = True
    cluster.now_s += 60
    code, told = run()
    assert code != 0
    assert "does not answer" in orjson.loads(told)["error"]["message"]
