"""A server that is away while it is followed: ``python -m steptax.benchmarks.product.outage``.

Two real Prometheus servers scrape one exporter of ``--devices`` devices every second, and a real
``steptax watch prometheus`` follows each into a lake of its own. Then, for ``--away`` seconds,

* one server is **killed** (SIGKILL) and started again on its data: nobody scraped in that time, so
  it must be marked as a gap, and no sample may be stored in it;
* the other goes on scraping and is **cut off**: no connection to it is accepted. Nothing is lost,
  so every scrape must be there afterwards and no gap may be told.

The exporter gives every answer a number of its own, in the energy counter, so a value that is
stored at two moments is seen. What was scraped is told by the servers themselves, at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import requests

from steptax.app.lake import Lake
from steptax.app.views.devices.sampling import sample_gaps
from steptax.app.views.workspace import open_workspace
from steptax.benchmarks.product import flags

#: A sample this much older than the end of an outage has been caught up by then.
FRESH_S = 25.0
#: A server that has just started scrapes for the first time so many seconds later.
STARTS_S = 10.0
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Followed:
    """What came of one server.

    ``missing`` are scrapes that the server holds and the lake does not, ``strange`` the other way
    round; ``repeated`` are values stored at a second moment; ``in_outage`` are samples stored of
    the outage. ``caught_up_s`` is from the return of the server to samples that are fresh again.
    """

    scraped: int
    stored: int
    missing: int
    strange: int
    repeated: int
    in_outage: int
    gaps: int
    gap_s: float
    refusals_told: int
    caught_up_s: float
    holds: bool


@dataclass(frozen=True)
class Outcome:
    """Both servers, of an outage of ``away_s``."""

    away_s: float
    devices: int
    killed: Followed
    cut_off: Followed


class Exporter(ThreadingHTTPServer):
    """Answers as dcgm-exporter does; the n-th answer has n in every energy counter."""

    def __init__(self, devices: int) -> None:
        super().__init__(("127.0.0.1", 0), _Scrape)
        self.devices = devices
        self.lock, self.count = threading.Lock(), 0


class _Scrape(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Exporter)
        with server.lock:
            server.count += 1
            number = server.count
        lines = []
        for k in range(server.devices):
            labels = f'gpu="{k}",UUID="GPU-away-{k}",Hostname="node-a",modelName="NVIDIA H100"'
            # Of each answer another one: millijoules, stored as joules.
            lines.append(f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}} {number * 1000}")
            lines.append(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {90 + number % 10}")
            lines.append(f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} {600 + number % 97 / 10}")
        body = "\n".join([*lines, ""]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


class Server:
    """A Prometheus server of its own, killed and started on the same data."""

    def __init__(self, program: str, folder: Path, exporter_port: int) -> None:
        folder.mkdir()
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        target = f"127.0.0.1:{exporter_port}"
        (folder / "config.yml").write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            f"scrape_configs: [{{job_name: dcgm, static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        self._log = folder / "log"
        self._command = [
            program,
            f"--config.file={folder / 'config.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        while self._process.poll() is None:
            with suppress(requests.ConnectionError):
                if requests.get(f"{self.url}/-/ready", timeout=5).status_code == 200:
                    return
            time.sleep(0.1)
        raise SystemExit(f"Prometheus did not start: {self._log.read_text()[-1000:]}")

    def kill(self) -> None:
        """Kill it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def scrapes(self, seconds: int) -> dict[tuple[str, int], float]:
        """What it holds of the energy counter of the last ``seconds``: device, millisecond, J."""
        query = f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[{seconds}s]"
        found = requests.post(f"{self.url}/api/v1/query", data={"query": query}, timeout=60).json()
        return {
            (series["metric"]["UUID"], round(at_s * 1000)): float(value) / 1000
            for series in found["data"]["result"]
            for at_s, value in series["values"]
        }


class Gate:
    """Passes connections on to ``port`` while it is open; one at a time, as a watch asks."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.port = _free_port()
        self._listening: socket.socket | None = None

    @property
    def url(self) -> str:
        """Where the server is reached through it."""
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        """Accept connections from now on."""
        self._listening = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._serve, args=(self._listening,), daemon=True).start()

    def shut(self) -> None:
        """Refuse connections from now on."""
        if self._listening is not None:
            # Closing alone does not wake up who waits in accept.
            with suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                listening.close()
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            threading.Thread(target=_join, args=(near, far), daemon=True).start()


def _join(near: socket.socket, far: socket.socket) -> None:
    """Pass on what both say until both are done."""
    with near, far:
        back = threading.Thread(target=_pass_on, args=(far, near), daemon=True)
        back.start()
        _pass_on(near, far)
        back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(_CHUNK):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)


class Watcher:
    """A ``steptax watch prometheus`` of its own process."""

    def __init__(self, url: str, lake: Path, told: Path) -> None:
        self.lake, self._told = lake, told
        command = [sys.executable, "-m", "steptax.app.cli", "watch", "prometheus", url]
        command += ["--interval", "5", "--lake", str(lake), "--json"]
        with told.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    def stop(self) -> None:
        """Ask it to leave, as Ctrl-C does, and wait."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._process.wait(60)

    @property
    def is_at_work(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def refusals(self) -> int:
        """How often it said that the server is away."""
        lines = self._told.read_text().splitlines()
        return sum(line.startswith("{") and not json.loads(line)["ok"] for line in lines)

    def stored(self) -> dict[tuple[str, int], float]:
        """What the lake holds of the energy counter: device, millisecond, joules."""
        if not self.lake.exists():
            return {}
        rows = Lake(self.lake).read("device_samples")
        names = ("gpu_uuid", "ts_us", "energy_j")
        columns = [rows[name].to_pylist() for name in names if name in rows.column_names]
        return {(uuid, ts // 1000): joules for uuid, ts, joules in zip(*columns, strict=True)}


def run(folder: Path, *, devices: int, around_s: float, away_s: float) -> Outcome:
    """Follow both servers before, in and after the outage, and hold the lakes against them."""
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("there is no Prometheus server here (Debian: package prometheus)")
    begin = time.time()
    with ExitStack() as leave:
        exporter = Exporter(devices)
        threading.Thread(target=exporter.serve_forever, daemon=True).start()
        leave.callback(exporter.shutdown)
        killed, cut = (
            Server(program, folder / name, exporter.server_port) for name in ("killed", "cut-off")
        )
        gate = Gate(cut.port)
        for server in (killed, cut):
            server.start()
            leave.callback(server.kill)
        gate.open()
        leave.callback(gate.shut)
        watches = []
        for server, url in ((killed, killed.url), (cut, gate.url)):
            name = "killed" if server is killed else "cut-off"
            watches.append(Watcher(url, folder / f"{name}-lake", folder / f"{name}.jsonl"))
            leave.callback(watches[-1].stop)
        _say(f"two servers are followed for {around_s:.0f} s")
        time.sleep(around_s)
        away = time.time()
        killed.kill()
        gate.shut()
        _say(f"both are away for {away_s:.0f} s")
        time.sleep(away_s)
        gate.open()
        killed.start()
        back = time.time()
        _say("both are back")
        caught_up = [_caught_up(watch, back) for watch in watches]
        time.sleep(max(0.0, around_s - (time.time() - back)))
        if not all(watch.is_at_work for watch in watches):
            raise SystemExit("a watch has ended by itself")
        for watch in watches:
            watch.stop()
        held = [server.scrapes(round(time.time() - begin) + 60) for server in (killed, cut)]
        found = [
            _outcome(watch, scraped, (away, back), late, lost=lost)
            for watch, scraped, late, lost in zip(
                watches, held, caught_up, (True, False), strict=True
            )
        ]
    return Outcome(away_s, devices, *found)


def _caught_up(watch: Watcher, back: float) -> float:
    """Seconds from ``back`` until the newest stored sample is fresh again."""
    while time.time() < back + 300:
        newest_ms = max((ms for _, ms in watch.stored()), default=0)
        if newest_ms / 1000 > time.time() - FRESH_S:
            return time.time() - back
        time.sleep(0.5)
    raise SystemExit("it did not catch up within five minutes")


def _outcome(
    watch: Watcher,
    scraped: dict[tuple[str, int], float],
    outage: tuple[float, float],
    caught_up_s: float,
    *,
    lost: bool,
) -> Followed:
    """Hold what is stored against what was scraped; ``lost`` where the outage was not scraped."""
    stored = watch.stored()
    # A watch stores what is some seconds old, and asks for no more than an hour before it began.
    newest = max(ms for _, ms in stored)
    due = {key: value for key, value in scraped.items() if key[1] <= newest}
    missing = sum(stored.get(key) != value for key, value in due.items())
    strange = len(stored.keys() - scraped.keys())
    moments = Counter((uuid, joules) for (uuid, _), joules in stored.items())
    repeated = sum(count - 1 for count in moments.values())
    inside = [ms for _, ms in stored if outage[0] * 1000 + 1000 < ms < outage[1] * 1000 - 1000]
    found = sample_gaps(open_workspace(watch.lake), now_us=newest * 1000)
    # Of a gap within one minute the roll-up knows how long it is, and not where in the minute.
    gap_s = max((gap.without_us / gap.devices / 1e6 for gap in found), default=0.0)
    span_s = outage[1] - outage[0]
    is_as_long = span_s - 3 < gap_s < span_s + STARTS_S
    marked = len(found) == 1 and is_as_long if lost else not found
    clean = not (missing or strange or repeated)
    return Followed(
        scraped=len(due),
        stored=len(stored),
        missing=missing,
        strange=strange,
        repeated=repeated,
        in_outage=len(inside),
        gaps=len(found),
        gap_s=gap_s,
        refusals_told=watch.refusals(),
        caught_up_s=caught_up_s,
        holds=clean and marked and bool(inside) != lost,
    )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--away", type=flags.amount, default=600.0, help="seconds of the outage")
    parser.add_argument(
        "--around", type=flags.amount, default=90.0, help="seconds before and after it"
    )
    parser.add_argument("--devices", type=flags.count, default=8)
    given = parser.parse_args()
    os.environ.setdefault("NO_PROXY", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="steptax-outage-") as folder:
        outcome = run(Path(folder), devices=given.devices, around_s=given.around, away_s=given.away)
    told = asdict(outcome)
    print(json.dumps(told, indent=1, default=str))
    if not (outcome.killed.holds and outcome.cut_off.holds):
        raise SystemExit("a gap is not marked, or a value is missing or repeated")


if __name__ == "__main__":
    main()
