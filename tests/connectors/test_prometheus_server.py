"""Samples of a Prometheus server: windows, refusals, outages; and a real server over its socket."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import requests

from steptax.app.errors import InputError
from steptax.app.lake import Lake
from steptax.app.views.devices.sampling import sample_gaps
from steptax.app.views.workspace import open_workspace
from steptax.app.watch import Refused, Stored
from steptax.app.watch_server import ServerWatch
from steptax.connectors.asking import TRIES
from steptax.connectors.base import Options
from steptax.connectors.prometheus.api import PrometheusConnector, window_of
from steptax.connectors.prometheus.moments import moment_of, seconds_of
from steptax.connectors.prometheus.server import (
    TIMEOUT_S,
    PrometheusServer,
    Window,
    base_of,
)

READER = PrometheusConnector()
BEGIN_S = 1_746_000_000
US = 1_000_000


@dataclass
class Answer:
    status_code: int
    content: bytes
    headers: dict[str, str] = field(default_factory=dict)


def good(*result: dict[str, Any]) -> Answer:
    data = {"resultType": "matrix", "result": list(result)}
    return Answer(200, json.dumps({"status": "success", "data": data}).encode())


def refusal(text: str, status: int = 422) -> Answer:
    body = {"status": "error", "errorType": "execution", "error": text}
    return Answer(status, json.dumps(body).encode())


class Script:
    """A transport that answers by what it is asked, or from a list, and notes the questions."""

    def __init__(self, *answers: Answer | Exception, by: Callable[..., Answer] | None = None):
        self.answers = list(answers)
        self.by = by
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.given: list[dict[str, Any]] = []
        self.slept: list[float] = []

    def __call__(self, method: str, url: str, **given: Any) -> Answer:
        assert (method, given["timeout"]) == ("POST", TIMEOUT_S)
        self.asked.append((url, given["data"]))
        self.given.append(given)
        if self.by is not None:
            return self.by(**given["data"])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def windows(self, window: Window, url: str = "http://h:9090", **how: Any) -> dict[str, bytes]:
        return dict(PrometheusServer(self, sleep=self.slept.append, **how).windows(url, window))


def window(seconds: float, step_s: float | None = None, start_s: int = BEGIN_S) -> Window:
    return Window(start_s * US, round((start_s + seconds) * US), step_s)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h:9090", "http://h:9090"),
        ("http://h:9090/graph?g0.expr=up", "http://h:9090"),
        ("https://h/prom/api/v1/query", "https://h/prom"),
        ("https://user:secret@h/prom/", "https://h/prom"),
    ],
)
def test_the_address_is_that_of_the_server(url: str, base: str) -> None:
    found, name = base_of(url)
    assert found == base
    assert re.fullmatch(r"[\w.-]+", name)


def test_what_is_no_address_is_refused_without_its_password() -> None:
    with pytest.raises(InputError) as caught:
        base_of("ftp://user:secret@h/")
    assert "secret" not in str(caught.value)


def test_moments_and_lengths() -> None:
    now_s = 1_746_007_200.0
    assert moment_of("2025-04-30T08:00:00Z", "--to") == BEGIN_S * US
    assert moment_of("2025-04-30T08:00", "--to") == BEGIN_S * US
    assert moment_of("2025-04-30T10:00:00+02:00", "--to") == BEGIN_S * US
    assert moment_of("1746000000.5", "--to") == BEGIN_S * US + 500_000
    assert moment_of("-2h", "--from", now_s=now_s) == BEGIN_S * US
    assert moment_of("now", "--to", now_s=now_s) == 1_746_007_200 * US
    assert [seconds_of(t, "--step") for t in ("15", "30s", "5m", "1.5h")] == [15, 30, 300, 5400]
    for text in ("yesterday", "9e9", "99999999999", "0"):
        with pytest.raises(InputError, match="expected a moment"):
            moment_of(text, "--from")
    for text in ("0", "soon", "-5s", "9999999999999"):
        with pytest.raises(InputError, match="length of time"):
            seconds_of(text, "--step")


def test_an_hour_is_asked_for_unless_told() -> None:
    found = window_of({"to": str(BEGIN_S)})
    assert (found.start_us, found.end_us) == ((BEGIN_S - 3600) * US, BEGIN_S * US)
    assert window_of({"from": "1", "to": "2", "step": "500ms"}) == Window(US, 2 * US, 0.5)
    with pytest.raises(InputError, match="end behind the begin"):
        list(Window(2 * US, 2 * US).parts())
    with pytest.raises(InputError, match="not years"):
        list(Window(US, 4_000_000_000 * US).parts())


def test_raw_windows_join_without_a_gap_and_are_the_same_from_any_begin() -> None:
    parts = list(window(3000, start_s=BEGIN_S + 7).parts())
    assert parts[0].start_us == (BEGIN_S + 7) * US
    assert parts[-1].end_us == (BEGIN_S + 3007) * US
    assert all(a.end_us == b.start_us for a, b in pairwise(parts))
    assert {part.end_us % (900 * US) for part in parts[:-1]} == {0}


def test_steps_go_on_from_window_to_window() -> None:
    script = Script(by=lambda **_: good())
    script.windows(window(3000, 7.0))
    spans = {
        (float(q["start"]), float(q["end"])) for _, q in script.asked if "GPU_UTIL" in q["query"]
    }
    asked = [t for start, end in sorted(spans) for t in _steps(start, end, 7.0)]
    assert asked == _steps(asked[0], BEGIN_S + 3000, 7.0)
    assert asked[0] <= BEGIN_S + 7
    assert {url for url, _ in script.asked} == {"http://h:9090/api/v1/query_range"}


def _steps(start: float, end: float, step: float) -> list[float]:
    return [start + step * i for i in range(int((end - start) / step + 1e-6) + 1)]


def _said(found: dict[str, bytes]) -> list[dict[str, int]]:
    return [json.loads(body.split(b"\n")[0])["window"] for body in found.values()]


def test_a_window_that_is_too_much_is_halved() -> None:
    def answer(query: str, **_: str) -> Answer:
        asked = re.search(r"\[(\d+)ms\]$", query)
        assert asked is not None
        if int(asked[1]) > 400_000:
            return refusal("query processing would load too many samples into memory")
        return good()

    said = _said(Script(by=answer).windows(window(900)))
    # 900 s and the 600 s before, 450 and 300, 225 and 150.
    assert [one["start_us"] // US - BEGIN_S for one in said] == [0, 225, 450, 675]
    assert [one["end_us"] // US - BEGIN_S for one in said] == [225, 450, 675, 900]
    assert {one["start_us"] - one["read_from_us"] for one in said} == {150 * US}


def test_an_answer_that_is_too_long_is_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(query: str, **_: str) -> Answer:
        asked = re.search(r"\[(\d+)ms\]$", query)
        assert asked is not None
        return Answer(200, good().content + b" " * (int(asked[1]) // 1000))

    monkeypatch.setattr("steptax.connectors.prometheus.server.ANSWER_BYTES", 1000)
    assert len(Script(by=answer).windows(window(900))) == 2
    monkeypatch.setattr("steptax.connectors.prometheus.server.ANSWER_BYTES", 10)
    with pytest.raises(InputError, match="still too much: it answers more than"):
        Script(by=answer).windows(window(900))


def test_a_server_that_refuses_every_size_is_named() -> None:
    script = Script(by=lambda **_: refusal("too many samples"))
    with pytest.raises(InputError, match="15 seconds is still too much: too many samples"):
        script.windows(window(900))


def test_a_query_that_is_refused_is_not_asked_again() -> None:
    script = Script(refusal("parse error: unexpected <by>", 400))
    with pytest.raises(InputError, match="parse error"):
        script.windows(window(60))
    assert not script.slept


def test_it_waits_for_a_server_that_is_busy_or_away() -> None:
    busy = Answer(503, b"", {"Retry-After": "3"})
    script = Script(ConnectionError(), busy, good())
    assert len(script.windows(window(60))) == 1
    assert script.slept == [0.5, 3.0]


def test_it_gives_up_on_a_server_that_stays_away() -> None:
    script = Script(*[ConnectionRefusedError()] * TRIES)
    with pytest.raises(InputError, match="does not answer: ConnectionRefusedError"):
        script.windows(window(60))
    assert len(script.asked) == TRIES


def test_a_refused_login_is_said_at_once() -> None:
    script = Script(Answer(401, b"Unauthorized"))
    with pytest.raises(InputError, match="answers 401") as caught:
        script.windows(window(60))
    assert "PROMETHEUS_TOKEN" in (caught.value.hint or "")
    assert len(script.asked) == 1


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"a":' * 9999, b'{"status": "ok"}'])
def test_another_server_is_named(content: bytes) -> None:
    with pytest.raises(InputError, match="expected the answer of a Prometheus server"):
        Script(Answer(200, content)).windows(window(60))


def test_a_token_goes_before_a_name() -> None:
    script = Script(good(), good())
    script.windows(window(60), token="abc", user=("n", "p"))
    script.windows(window(60), user=("n", "p"))
    assert script.given[0]["headers"] == {"Authorization": "Bearer abc"}
    assert [given["auth"] for given in script.given] == [None, ("n", "p")]
    assert all("verify" not in given for given in script.given)  # requests checks certificates


def test_the_environment_authorises(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    def request(_method: str, _url: str, **given: Any) -> Answer:
        seen.append(given)
        return good()

    monkeypatch.setattr(requests, "request", request)
    monkeypatch.setenv("PROMETHEUS_TOKEN", "abc")
    list(READER.pull("http://h", Options(extra={"from": "60", "to": "90"})))
    assert seen[0]["headers"] == {"Authorization": "Bearer abc"}


def test_an_empty_window_is_said_and_no_fault(tmp_path: Path) -> None:
    [(name, body)] = Script(good()).windows(window(60)).items()
    path = tmp_path / name
    path.write_bytes(body)
    [batch] = READER.read(path, Options())
    assert batch.rows.num_rows == 0
    assert not batch.rejects
    assert batch.notes == (
        "there are no samples of devices or ports from 1746000000.000 to 1746000060.000",
    )


# --- a real server


def _scraped() -> Iterator[tuple[str, int, float, float]]:
    """UUID, second, power, utilisation of two cards, one of them away for ten of 40 minutes."""
    for at in range(0, 2400, 15):
        yield "GPU-real-0", at, 600 + at / 100, 90 + at % 7
        if not 900 <= at < 1500:
            yield "GPU-real-1", at, 300 + at / 100, 50 + at % 5


class Real:
    """A server of its own on the samples in ``folder``, that can be killed and started again.

    ``more`` are further arguments; ``asking`` is how it is asked whether it is ready.
    """

    def __init__(self, program: str, folder: Path, *more: str, **asking: Any) -> None:
        self._asking = asking
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.port = port
        self.url = f"{'https' if 'verify' in asking else 'http'}://localhost:{port}"
        self._log = folder / "log"
        self._command = [
            program,
            f"--config.file={folder / 'config.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address=127.0.0.1:{port}",
            *more,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        while self._process.poll() is None:
            try:
                if (
                    requests.get(f"{self.url}/-/ready", timeout=5, **self._asking).status_code
                    == 200
                ):
                    return
            except requests.ConnectionError:
                pass
            time.sleep(0.1)
        raise AssertionError(self._log.read_text()[-2000:])

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def scraped_before(folder: Path) -> str:
    """Write the samples into ``folder`` as a server keeps them; the program of the server."""
    program, tool = shutil.which("prometheus"), shutil.which("promtool")
    if program is None or tool is None:
        pytest.skip("there is no Prometheus server here (Debian: package prometheus)")
    samples = list(_scraped())
    lines = []
    for name, column in (("DCGM_FI_DEV_POWER_USAGE", 2), ("DCGM_FI_DEV_GPU_UTIL", 3)):
        lines.append(f"# TYPE {name} gauge")
        for card in ("GPU-real-0", "GPU-real-1"):
            labels = f'gpu="0",UUID="{card}",Hostname="node-a",modelName="NVIDIA H100"'
            lines += [
                f"{name}{{{labels}}} {s[column]} {BEGIN_S + s[1]}" for s in samples if s[0] == card
            ]
    (folder / "samples").write_text("\n".join([*lines, "# EOF", ""]))
    subprocess.run(
        [tool, "tsdb", "create-blocks-from", "openmetrics", folder / "samples", folder / "data"],
        check=True,
        capture_output=True,
    )
    (folder / "config.yml").write_text("global: {}\n")
    return program


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    folder = tmp_path_factory.mktemp("prometheus")
    found = Real(scraped_before(folder), folder)
    found.start()
    try:
        yield found
    finally:
        found.stop()


def _pulled(url: str, tmp_path: Path, **extra: str) -> tuple[list[dict[str, Any]], list[str]]:
    rows, notes = [], []
    for name, body in READER.pull(url, Options(extra=extra)):
        path = tmp_path / name
        path.write_bytes(body)
        for batch in READER.read(path, Options()):
            rows += batch.rows.to_pylist()
            notes += batch.notes
            assert not batch.rejects
    return rows, notes


SPAN = {"from": str(BEGIN_S - 1), "to": str(BEGIN_S + 2400)}


class TestRealServer:
    def test_every_sample_comes_once_at_its_own_moment(self, server: Real, tmp_path: Path) -> None:
        rows, notes = _pulled(server.url, tmp_path, **SPAN)
        found = {(r["gpu_uuid"], r["ts_us"]): (r["power_w"], r["util_ratio"]) for r in rows}
        wanted = {
            (card, (BEGIN_S + at) * US): (pytest.approx(power), pytest.approx(util / 100))
            for card, at, power, util in _scraped()
        }
        assert len(found) == len(rows) == len(wanted)
        assert found == wanted
        assert {(r["host"], r["gpu_model"]) for r in rows} == {("node-a", "NVIDIA H100")}
        assert any("1 gap between samples" in note and "GPU-real-1" in note for note in notes)

    def test_steps_repeat_nothing_over_an_outage(self, server: Real, tmp_path: Path) -> None:
        rows, _ = _pulled(server.url, tmp_path, step="30s", **SPAN)
        times = [r["ts_us"] // US - BEGIN_S for r in rows if r["gpu_uuid"] == "GPU-real-1"]
        # A plain query would give the sample of second 885 until second 1185.
        known = {at for card, at, *_ in _scraped() if card == "GPU-real-1"}
        wanted = [t for t in range(0, 2401, 30) if known & set(range(t - 29, t + 1))]
        assert times == wanted
        assert not set(range(901, 1500)) & set(times)
        power = {
            r["ts_us"] // US - BEGIN_S: r["power_w"] for r in rows if r["gpu_uuid"] == "GPU-real-1"
        }
        assert power[2400] == pytest.approx(300 + 2385 / 100)

    def test_the_command_stores_it_and_again_adds_nothing(
        self, server: Real, steptax: Any, tmp_path: Path
    ) -> None:
        arguments = (
            "ingest",
            "prometheus",
            server.url,
            "--from",
            BEGIN_S - 1,
            "--to",
            BEGIN_S + 2400,
        )
        first = steptax(*arguments)
        assert first["tables"]["device_samples"]["accepted"] == len(list(_scraped()))
        assert all(one["already"] for one in steptax(*arguments)["ingests"])
        later = steptax(*arguments[:-1], BEGIN_S + 2000)
        assert later["tables"]["device_samples"]["accepted"] == 0
        assert Lake(tmp_path / "lake").commits.all()

    def test_a_watch_catches_up_after_the_server_was_killed(
        self, server: Real, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(PrometheusServer.__init__.__kwdefaults__, "sleep", lambda _s: None)
        now_s = BEGIN_S + 615.0
        lake = Lake(tmp_path / "lake", create=True)
        watch = ServerWatch(lake, "prometheus", server.url, Options(), clock=lambda: now_s)
        stored = _stored(watch)
        server.stop()
        now_s += 600
        ws = open_workspace(tmp_path / "lake")
        try:
            assert [type(found) for found in watch.look()] == [Refused]
            # While it is away, the pages say since when nothing is known.
            [away] = sample_gaps(ws, now_us=round(now_s * US))
            assert (away.start_us, away.devices, away.is_open) == ((BEGIN_S + 600) * US, 2, True)
        finally:
            server.start()
        now_s = BEGIN_S + 3000.0
        stored += _stored(watch)
        assert stored == len(list(_scraped()))
        assert _stored(watch) == 0
        # What was caught up is no gap; what nobody ever scraped stays one.
        gaps = sample_gaps(ws, now_us=(BEGIN_S + 2400) * US)
        assert [(g.start_us, g.end_us, g.devices, g.is_open) for g in gaps] == [
            ((BEGIN_S + 885) * US, (BEGIN_S + 1500) * US, 1, False)
        ]


def _stored(watch: ServerWatch) -> int:
    found = list(watch.look())
    assert all(isinstance(one, Stored) for one in found)
    return sum(
        one.result.accepted.get("device_samples", 0) for one in found if isinstance(one, Stored)
    )
