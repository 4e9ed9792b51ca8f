"""``steptax doctor``: each thing that can be wrong is found, and what to do is said."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from steptax.app import doctor
from steptax.app.doctor import Finding, State
from steptax.app.lake import Lake
from steptax.app.lake.commits import Commit
from tests.team_lake import store_team

Run = Callable[..., Any]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "lake", create=True)
    made.root.chmod(0o700)
    store_team(made, "alpha")
    return made


def found(data: dict[str, Any], check: str) -> list[dict[str, Any]]:
    return [one for one in data["findings"] if one["check"] == check]


def test_a_sound_lake_fails_nothing_and_every_check_speaks(lake: Lake, steptax: Run) -> None:
    data = steptax("doctor", "--lake", str(lake.root), "--deep")
    assert data["failed"] == 0
    checks = {one["check"] for one in data["findings"]}
    assert checks >= {
        "versions",
        "drivers",
        "clock",
        "secrets",
        "permissions",
        "disk",
        "lake",
        "sources",
    }
    for one in data["findings"]:
        assert (one["hint"] is None) is (one["state"] in ("ok", "skip")), one


def test_a_damaged_segment_fails_with_its_name(lake: Lake, steptax: Run) -> None:
    segment = lake.segments("steps")[0].path
    segment.write_bytes(segment.read_bytes()[:50])
    data = steptax("doctor", "--lake", str(lake.root), "--deep", exits=3)
    (one,) = [f for f in found(data, "lake") if f["state"] == "fail"]
    assert lake.relative(segment) in one["text"]
    assert "backup" in one["hint"]
    lake.set_damaged_aside(lake.segments("steps"))
    data = steptax("doctor", "--lake", str(lake.root), exits=3)
    (one,) = [f for f in found(data, "lake") if f["state"] == "fail"]
    assert str(segment) in one["hint"]


def test_a_lake_that_is_not_there_or_of_another_format(tmp_path: Path, steptax: Run) -> None:
    data = steptax("doctor", "--lake", str(tmp_path / "none"))
    assert "there is no lake" in found(data, "permissions")[0]["text"]
    other = Lake(tmp_path / "other", create=True)
    (other.root / "LAKE.json").write_text('{"format": 99}')
    data = steptax("doctor", "--lake", str(other.root), exits=3)
    assert "lake format 99" in found(data, "lake")[0]["text"]


def test_a_lake_that_everybody_may_read_is_said(lake: Lake, steptax: Run) -> None:
    lake.root.chmod(0o755)
    data = steptax("doctor", "--lake", str(lake.root))
    assert any("every user" in one["text"] for one in found(data, "permissions"))


def test_a_disk_that_is_nearly_full(
    lake: Lake, steptax: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = shutil.disk_usage(lake.root)
    for free, state in ((100 << 20, "fail"), (int(used.total * 0.05), "warn")):
        monkeypatch.setattr(
            shutil,
            "disk_usage",
            lambda _, free=free: used._replace(free=free),  # type: ignore[misc]
        )
        data = steptax(
            "doctor", "--lake", str(lake.root), **({"exits": 3} if state == "fail" else {})
        )
        assert found(data, "disk")[0]["state"] == state


def test_a_commit_from_the_future_tells_of_a_clock(lake: Lake, steptax: Run) -> None:
    ahead = time.time_ns() // 1000 + 3_600_000_000
    lake.commit(
        Commit(
            "later",
            "ingest",
            ahead,
            detail={"accepted": {}, "rejected": {}, "source": "x"},
        )
    )
    data = steptax("doctor", "--lake", str(lake.root))
    assert any("in the future" in one["text"] for one in found(data, "clock"))


def test_a_package_of_a_wrong_version_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.importlib.metadata.version
    monkeypatch.setattr(
        doctor.importlib.metadata,
        "version",
        lambda name: "1.5.0" if name == "duckdb" else real(name),
    )
    (one,) = doctor._versions()
    assert one.state is State.FAIL
    assert "duckdb is 1.5.0" in one.text


def test_rules_that_others_may_read_fail(
    lake: Lake, steptax: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "access.toml"
    path.write_text("[auth]\n")
    path.chmod(0o644)
    monkeypatch.setenv("STEPTAX_ACCESS", str(path))
    data = steptax("doctor", "--lake", str(lake.root), exits=3)
    (one,) = found(data, "secrets")
    assert "chmod 600" in one["hint"]


@pytest.fixture
def server() -> Iterator[tuple[str, list[int]]]:
    status = [200]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status[0] if self.path == "/healthz" else 404)
            self.end_headers()
            self.wfile.write(b'{"status": "ok"}')

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}", status
        made.shutdown()


def test_a_server_is_asked(lake: Lake, steptax: Run, server: tuple[str, list[int]]) -> None:
    url, status = server
    data = steptax("doctor", "--lake", str(lake.root), "--url", url)
    assert found(data, "server")[0]["state"] == "ok"
    status[0] = 503
    data = steptax("doctor", "--lake", str(lake.root), "--url", url, exits=3)
    assert "answers 503" in found(data, "server")[0]["text"]
    data = steptax("doctor", "--lake", str(lake.root), "--url", "http://127.0.0.1:9", exits=3)
    assert "does not answer" in found(data, "server")[0]["text"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_the_clock_is_asked_and_not_set() -> None:
    before = time.time()
    (one,) = doctor._clock()
    assert isinstance(one, Finding)
    assert one.state in (State.OK, State.WARN, State.SKIP)
    assert abs(time.time() - before) < 60


def test_a_check_that_fails_itself_does_not_hide_what_the_others_find(
    lake: Lake, steptax: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Path, **__: Any) -> Iterator[Finding]:
        yield Finding("lake", State.OK, "so far")
        raise KeyError("rank")

    monkeypatch.setattr(doctor, "_lake", broken)
    data = steptax("doctor", "--lake", str(lake.root), exits=3)
    said, failed = found(data, "lake")
    assert said["text"] == "so far"
    assert "KeyError" in failed["text"]
    assert found(data, "sources")
