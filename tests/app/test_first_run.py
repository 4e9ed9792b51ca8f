"""What is found on a machine: each source alone, and nothing where there is nothing."""

from __future__ import annotations

import http.server
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from steptax.app import first_files, first_run
from steptax.app.cli import main
from steptax.app.commands import discover
from steptax.app.first_run import Offer, connect, found_here, usual_folders
from steptax.app.lake import Lake
from tests.app.fleet_lake import charge, rows, us

EXAMPLES = Path(__file__).parents[1] / "connectors" / "examples"
ANSWERS = {
    "/api/v1/status/buildinfo": b'{"status":"success","data":{"version":"2.53.0"}}',
    "/metrics": b"DCGM_FI_DEV_GPU_UTIL 1\n",
}


@pytest.fixture
def serve() -> Iterator[int]:
    """A server of this machine that answers as Prometheus and as dcgm-exporter; gives its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = ANSWERS.get(self.path, b"")
            self.send_response(200 if body else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield int(server.server_address[1])
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without devices and commands; gives a folder for files."""
    monkeypatch.setattr(first_run, "_devices", list)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def commands(found: tuple[Offer, ...]) -> list[str]:
    return [offer.command for offer in found]


def test_a_bare_machine_offers_nothing(bare: Path) -> None:
    assert found_here(folders=[bare], ports=()) == ()


def test_servers_of_this_machine_are_told_apart(bare: Path, serve: int) -> None:
    ports = (("prometheus", serve), ("dcgm", serve), ("node-exporter", serve))
    assert commands(found_here(folders=[bare], ports=ports)) == [
        f"steptax watch prometheus http://127.0.0.1:{serve}",
        f"steptax watch dcgm http://127.0.0.1:{serve}",
    ]


def test_a_port_that_is_closed_or_never_answers_holds_up_nothing(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_run, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert found_here(folders=[bare], ports=(("prometheus", port),)) == ()
    assert found_here(folders=[bare], ports=(("prometheus", port),)) == ()


def test_slurm_is_found_by_its_command(bare: Path) -> None:
    sacct = bare.parent / "bin" / "sacct"
    sacct.write_text("#!/bin/sh\necho slurm 24.05.1\n")
    sacct.chmod(0o755)
    (offer,) = found_here(folders=[bare], ports=())
    assert "slurm 24.05.1" in offer.title
    assert offer.command == "steptax watch slurm --from -30d"
    assert not offer.can_connect
    sacct.write_text("#!/bin/sh\nexit 1\n")
    assert found_here(folders=[bare], ports=()) == ()


def test_devices_are_counted_and_a_broken_driver_offers_none(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    pynvml = pytest.importorskip("pynvml")
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 8)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda _: "NVIDIA H100 80GB HBM3")
    (offer,) = [o for o in found_here(folders=[bare], ports=()) if o.source == "devices"]
    assert offer.title == "8 NVIDIA H100 80GB HBM3 each"
    assert offer.command == "steptax watch nvml"

    def broken() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    monkeypatch.setattr(pynvml, "nvmlInit", broken)
    assert not [o for o in found_here(folders=[bare], ports=()) if o.source == "devices"]


def test_lakes_and_files_are_found_and_the_open_lake_is_not(bare: Path) -> None:
    here, other = bare / "here", bare / "my lakes" / "other"
    for root in (here, other):
        Lake(root, create=True).append("jobs", pa.table({"job_id": ["a"]}), source="test")
    Lake(bare / "empty", create=True)  # nothing was ever stored there
    traces = bare / "run-1"
    traces.mkdir()
    shutil.copy(EXAMPLES / "kineto.json", traces / "rank0.pt.trace.json")
    deep = bare / "a" / "b" / "c" / "d"
    deep.mkdir(parents=True)
    (deep / "rank0.pt.trace.json").touch()
    assert commands(found_here(folders=[bare], ports=(), but=here)) == [
        f"steptax serve --lake '{other}'",
        f"steptax ingest kineto {traces}",
    ]


def test_what_was_found_is_read_at_once(bare: Path, steptax: Callable[..., Any]) -> None:
    folder = bare / "run-1"
    folder.mkdir()
    shutil.copy(EXAMPLES / "kineto.json", folder / "rank0.pt.trace.json")
    (offer,) = found_here(folders=[bare], ports=())
    assert offer.can_connect
    root = bare.parent / "lake"
    assert "rows from 1 file" in connect(offer, root)
    assert [job["job_id"] for job in steptax("jobs")] == ["run-1"]
    assert "steptax ingest kineto" in offer.command


def test_files_of_the_working_directory_are_tried_as_ingest_tries_them(
    bare: Path, steptax: Callable[..., Any]
) -> None:
    copied = {"megatron.log": "train.log", "sacct.psv": "sacct.txt", "steps.csv": "my steps.csv"}
    for name, own in copied.items():
        shutil.copy(EXAMPLES / name, bare / own)
    (bare / "train-2.log").write_bytes(
        (EXAMPLES / "megatron.log").read_bytes() + b"prose\n" * 20_000
    )
    (bare / "notes.txt").write_text("nothing that anybody reads\n")
    (bare / "broken.json").write_text("{")
    (bare / "sub").mkdir()
    shutil.copy(EXAMPLES / "megatron.log", bare / "sub" / "train.log")  # not in the directory
    found = found_here(folders=[bare], ports=())
    assert set(commands(found)) == {
        f"steptax ingest megatron {bare}/train-2.log {bare}/train.log",
        f"steptax ingest sacct {bare}/sacct.txt",
        f"steptax ingest steps '{bare}/my steps.csv'",
    }
    (logs,) = [offer for offer in found if offer.kind == "megatron"]
    assert "step time of the job" in logs.gives
    assert "from 2 files" in connect(logs, bare.parent / "lake")
    assert {job["job_id"] for job in steptax("jobs")} == {"train", "train-2"}


def test_only_so_many_small_files_are_tried(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_files, "TRIED_FILES", 2)
    for name in "abc":
        shutil.copy(EXAMPLES / "megatron.log", bare / f"{name}.log")
    for age, name in enumerate("cab"):
        os.utime(bare / f"{name}.log", (1e9 - age, 1e9 - age))
    assert commands(found_here(folders=[bare], ports=())) == [
        f"steptax ingest megatron {bare}/a.log {bare}/c.log"
    ]
    monkeypatch.setattr(first_files, "WHOLE_BYTES", 10)  # what cannot be cut
    for path in bare.iterdir():
        path.unlink()
    shutil.copy(EXAMPLES / "kineto.json", bare / "trace.json")
    assert found_here(folders=[bare], ports=()) == ()


def test_the_command_lists_the_same(
    bare: Path, monkeypatch: pytest.MonkeyPatch, steptax: Callable[..., Any]
) -> None:
    monkeypatch.setattr(first_run, "usual_folders", lambda: [bare])
    monkeypatch.setattr(first_run, "PORTS", ())
    assert steptax("discover") == []
    Lake(bare / "old", create=True).append("jobs", pa.table({"job_id": ["a"]}), source="test")
    (found,) = steptax("discover")
    assert found["command"] == f"steptax serve --lake {bare / 'old'}"


def test_it_says_where_it_looked(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(discover, "usual_folders", lambda: [bare])
    monkeypatch.setattr(discover, "found_here", lambda: ())
    discover.discover_command()
    said = " ".join(capsys.readouterr().out.split())
    assert f"files of jobs in {bare}" in said
    assert "9090, 9400, 9100" in said


def test_the_lake_of_the_demo_is_among_the_usual_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(first_run, "demo_lake", lambda: tmp_path)
    assert tmp_path in usual_folders()


def test_a_mistyped_file_leaves_no_lake_behind(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["steptax", "ingest", "nofile.log", "--lake", str(bare / "l")])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert not (bare / "l").exists()


def test_the_demo_keeps_away_from_a_bill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_run.tempfile, "tempdir", str(tmp_path))
    own = first_run.demo_lake()
    assert own.parent == tmp_path
    lake = Lake(own, create=True)
    assert first_run.demo_lake() == own
    paid = charge("1", us(2026, 11, 1), us(2026, 11, 2), "32", "n1")
    lake.append("charges", rows([paid]), source="test")
    assert first_run.demo_lake() == own.with_name(f"{own.name}-2")
