"""A disk that is full in the middle of a watch: said once, and then everything is caught up."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from steptax.app.errors import InputError
from steptax.app.lake import Lake
from steptax.app.views.devices.sampling import sample_gaps
from steptax.app.views.workspace import open_workspace
from steptax.app.watch import Refused, Stored, Watch
from steptax.app.watch_server import SETTLE_S, ServerWatch
from steptax.connectors.base import Options
from tests.app.test_watch_server import BEGIN_S, URL, Cluster, cluster, times

__all__ = ["cluster"]
Full = Callable[[], AbstractContextManager[None]]


@contextmanager
def _no_file_may_grow() -> Iterator[None]:
    """The system refuses every write beyond the first bytes of a file, to any user."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def _filled(folder: Path) -> Iterator[None]:
    """Nothing is left of the disk that ``folder`` lies on."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
    try:
        yield
    finally:
        filler.unlink()


@pytest.fixture(params=["small disk", "size limit"])
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Full]:
    """What makes the lake's disk full: a disk of a megabyte of its own, or a limit on files."""
    if request.param == "size limit":
        yield _no_file_may_grow
        return
    folder = tmp_path / "lake"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small disk can only be mounted by root")
    try:
        yield partial(_filled, folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_server_is_caught_up_with(
    tmp_path: Path,
    cluster: Cluster,
    full: Full,
) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    watch = ServerWatch(lake, "prometheus", URL, Options(), clock=cluster.clock)
    list(watch.look())
    before = times(tmp_path)
    told: list[Any] = []
    with full():
        for _ in range(10):
            cluster.now_s += 60
            told += list(watch.look())
        with pytest.raises(InputError, match="cannot be stored"):
            list(watch.look(settled=True))
    [refused] = told
    assert isinstance(refused, Refused)
    assert "cannot be stored" in refused.error.message
    assert "disk space" in (refused.error.hint or "")
    assert times(tmp_path) == before
    # Until it is caught up the stretch is marked as one of which nothing is known.
    ws = open_workspace(tmp_path / "lake")
    [gap] = sample_gaps(ws, now_us=round(cluster.now_s * 1e6))
    assert gap.is_open
    assert gap.start_us == before[-1] * 1_000_000
    found = list(watch.look())
    assert found
    assert all(isinstance(one, Stored) for one in found)
    assert times(tmp_path) == list(cluster.scrapes(0, cluster.now_s - SETTLE_S))
    assert sample_gaps(ws, now_us=round(cluster.now_s * 1e6)) == ()
    assert before[0] >= BEGIN_S


def test_a_file_is_caught_up_with(tmp_path: Path, full: Full) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,rank,duration_us\n" + "".join(f"{s},0,1000\n" for s in range(5)))
    lake = Lake(tmp_path / "lake", create=True)
    watch = Watch(lake, "steps", log, Options(job_id="j"))
    with watch.alone():
        assert [type(one) for one in watch.look()] == [Stored]
        with log.open("a") as file:
            file.write("".join(f"{s},0,1000\n" for s in range(5, 9)))
        with full():
            assert [type(one) for one in watch.look()] == [Refused]
            assert list(watch.look()) == []
            with pytest.raises(InputError, match="cannot be stored"):
                list(watch.look(settled=True))
        assert [type(one) for one in watch.look()] == [Stored]
        assert list(watch.look()) == []
    assert sorted(lake.read("steps", "j")["step"].to_pylist()) == list(range(9))


def test_a_whole_file_is_caught_up_with(tmp_path: Path, full: Full) -> None:
    source = Path(__file__).parents[1] / "connectors" / "examples" / "ops.csv"
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_bytes(source.read_bytes())
    lake = Lake(tmp_path / "lake", create=True)
    watch = Watch(lake, "ops", folder, Options())
    with watch.alone():
        assert list(watch.look()) == []  # it may still be being written
        with full():
            assert [type(one) for one in watch.look()] == [Refused]
            assert list(watch.look()) == []
        assert [type(one) for one in watch.look()] == [Stored]
    assert [row["job_id"] for row in lake.read("jobs").to_pylist()] == ["a"]
