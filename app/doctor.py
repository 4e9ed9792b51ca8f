"""Looks at an installation as whoever runs it would, and says what to do about what it finds."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import shutil
import stat
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from packaging.requirements import Requirement

from steptax.app.access import read_rules
from steptax.app.errors import SteptaxError, UserError
from steptax.app.format import format_age
from steptax.app.lake import Lake, lake_at
from steptax.app.lake.bucket import url_of
from steptax.app.lake.folded import fold_number, is_whole
from steptax.app.lake.quarantine import FOLDER, segment_damage
from steptax.app.lake.standing import back_again, lost, sources_in_parts, together
from steptax.app.schema import TABLES
from steptax.app.settings import Settings

#: Free disk below which writing soon fails, and below which it is time to do something.
LEAST_FREE_BYTES, LOW_FREE_SHARE = 1 << 30, 0.10
#: Rows from so far in the future come of a clock that is wrong.
AHEAD_S = 120.0
#: What ``adjtimex`` answers when nobody sets the clock (Linux, sys/timex.h TIME_ERROR).
_TIME_ERROR = 5
#: More than ``struct timex`` takes on any architecture.
_TIMEX_BYTES = 512


class State(StrEnum):
    """How a finding is to be taken."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. ``hint`` says what to do, where there is something to do."""

    check: str
    state: State
    text: str
    hint: str | None = None


def examine(
    settings: Settings, *, url: str | None = None, deep: bool = False
) -> tuple[Finding, ...]:
    """Every check, in the order in which one would mend what they find.

    ``deep`` reads every segment of the lake whole; ``url`` is a page server to ask.
    """
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("versions", _versions),
        ("drivers", _drivers),
        ("clock", _clock),
        ("secrets", lambda: _secrets(settings)),
        ("permissions", lambda: _permissions(settings.lake)),
        ("disk", lambda: _disk(settings.lake)),
        ("lake", lambda: _lake(settings.lake, deep=deep)),
        ("sources", lambda: _sources(settings.lake)),
    ]
    if url is not None:
        checks.append(("server", lambda: _server(url)))
    found: list[Finding] = []
    for name, check in checks:
        try:
            found += check()
        except SteptaxError as error:
            where = f"{error.where}: " if error.where else ""
            found.append(Finding(name, State.FAIL, f"{where}{error.message}", error.hint))
        except OSError as error:
            found.append(Finding(name, State.FAIL, str(error)))
        except Exception as error:  # the others are looked at all the same
            text = f"the check itself failed: {type(error).__name__}: {error}"
            found.append(Finding(name, State.FAIL, text, "a fault of Steptax: please report it"))
    return tuple(found)


def _versions() -> Iterator[Finding]:
    me = importlib.metadata.metadata("steptax")
    text = f"steptax {me['Version']}, Python {sys.version.split()[0]}"
    wrong = []
    for line in importlib.metadata.requires("steptax") or ():
        need = Requirement(line)
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            have = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{need.name} is not installed")
            continue
        if not need.specifier.contains(have, prereleases=True):
            wrong.append(f"{need.name} is {have} where {need.specifier} is needed")
    if wrong:
        yield Finding(
            "versions",
            State.FAIL,
            f"{text}; {'; '.join(wrong)}",
            "in a checkout of Steptax: pip install -c constraints.txt .",
        )
    else:
        yield Finding("versions", State.OK, f"{text}, and every package that it needs")


def _drivers() -> Iterator[Finding]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if shutil.which("rocm-smi") or Path("/dev/kfd").exists():
            yield Finding("drivers", State.OK, "AMD devices: steptax watch rocm-smi reads them")
        elif Path("/dev/nvidiactl").exists():
            yield Finding(
                "drivers",
                State.FAIL,
                f"there is an NVIDIA device and its driver does not answer: {error}",
                "nvidia-smi says more; after an update of the driver the node needs a restart",
            )
        else:
            yield Finding("drivers", State.SKIP, "no GPU on this machine: nothing to sample here")
        return
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        count = pynvml.nvmlDeviceGetCount()
        yield Finding("drivers", State.OK, f"NVIDIA driver {driver}, {count} devices")
    finally:
        pynvml.nvmlShutdown()


def _clock() -> Iterator[Finding]:
    try:
        # Asks only: a buffer of zeros sets nothing.
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (AttributeError, OSError):
        yield Finding("clock", State.SKIP, "this system does not tell whether its clock is set")
        return
    if state == _TIME_ERROR:
        yield Finding(
            "clock",
            State.WARN,
            "nobody sets the clock of this machine: steps of several nodes may not line up",
            "run chrony or systemd-timesyncd; inside of a container the host does",
        )
    elif state < 0:
        yield Finding("clock", State.SKIP, "the system does not let us ask about the clock")
    else:
        yield Finding("clock", State.OK, "the clock is set by another")


def _secrets(settings: Settings) -> Iterator[Finding]:
    if settings.access is None:
        yield Finding("secrets", State.OK, "no login is set: pages are for this machine only")
        return
    rules = read_rules(settings.access)
    yield Finding(
        "secrets",
        State.OK,
        f"{settings.access}: {len(rules.grants)} rules, a login lasts {rules.session_hours:g} h",
    )


def _permissions(root: Path) -> Iterator[Finding]:
    if url_of(root) is not None:
        yield Finding("permissions", State.SKIP, "a bucket: its own rules say who may what")
        return
    if not root.exists():
        yield Finding(
            "permissions",
            State.WARN,
            f"there is no lake at {root}",
            "name one with --lake, or make one: steptax demo, steptax ingest",
        )
        return
    if not os.access(root, os.R_OK | os.X_OK):
        yield Finding("permissions", State.FAIL, f"{root} cannot be read", f"chmod u+rx {root}")
        return
    try:
        with tempfile.TemporaryFile(dir=root):
            yield Finding("permissions", State.OK, f"{root} can be read and written")
    except OSError as error:
        yield Finding(
            "permissions",
            State.WARN,
            f"{root} can be read, and not be written: {error.strerror}",
            "pages work; ingest, watch and compact need to write",
        )
    if root.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        word = "change" if root.stat().st_mode & stat.S_IWOTH else "read"
        yield Finding(
            "permissions",
            State.WARN,
            f"every user of this machine can {word} {root}",
            f"chmod o-rwx {root}",
        )


def _disk(root: Path) -> Iterator[Finding]:
    if (url := url_of(root)) is not None:
        from steptax.app.lake.bucket_lake import cache_folder

        root = cache_folder(url)  # where copies of its segments are kept
    place = next(p for p in (root.absolute(), *root.absolute().parents) if p.exists())
    used = shutil.disk_usage(place)
    text = f"{used.free / 1e9:,.1f} GB of {used.total / 1e9:,.1f} GB free at {place}"
    hint = "move the lake, or remove what is old; steptax compact gives small files back"
    if used.free < LEAST_FREE_BYTES:
        yield Finding("disk", State.FAIL, text, hint)
    elif used.free < LOW_FREE_SHARE * used.total:
        yield Finding("disk", State.WARN, text, hint)
    else:
        yield Finding("disk", State.OK, text)
    if hasattr(os, "statvfs"):
        files = os.statvfs(place)
        if files.f_files and files.f_favail < 0.02 * files.f_files:
            yield Finding("disk", State.FAIL, f"{files.f_favail:,} files are left", hint)


def _lake(root: Path, *, deep: bool) -> Iterator[Finding]:
    if url_of(root) is None and not root.exists():
        return
    lake = lake_at(root)
    segments = [segment for name in TABLES for segment in lake.segments(name)]
    if deep:
        for segment in segments:
            lake.fetched([segment])  # of a lake in a bucket
            reason = segment_damage(lake.root, segment)
            if reason is not None:
                yield Finding(
                    "lake",
                    State.FAIL,
                    f"{lake.relative(segment.path)} is damaged: {reason}",
                    "put it back from a backup; until then it is set aside when it is read",
                )
        lake.commits.all()
        for run in lake.commits.folded.runs:
            if not is_whole(run):
                yield Finding(
                    "lake",
                    State.FAIL,
                    f"commits/{run.name} is damaged: it does not hold what its name says",
                    f"put {lake.url or root}/commits of a backup back beside what is there",
                )
    yield from _gone(lake)
    if lake.url is None:
        for place, fault in lake.strange_heartbeats().items():
            yield Finding(
                "lake",
                State.WARN,
                f"{place} is passed over, for it is no heartbeat: {fault}",
                f"remove {root / place}; a recorder that runs writes it anew",
            )
    newest_us = max((c.created_us for c in lake.commits.all().values()), default=0)
    ahead_s = newest_us / 1e6 - time.time()
    if ahead_s > AHEAD_S:
        yield Finding(
            "clock",
            State.WARN,
            f"the newest commit is {format_age(ahead_s)} in the future",
            "a clock was wrong when it was written, or is now; nothing is lost by it",
        )
    small = sum(1 for s in segments if s.rows < 131_072)
    rows = sum(s.rows for s in segments)
    text = f"{rows:,} rows in {len(segments):,} segments" + (", each read whole" if deep else "")
    if small > 2_000:
        yield Finding("lake", State.WARN, f"{text}, {small:,} of them small", "steptax compact")
    else:
        yield Finding("lake", State.OK, text)


def _gone(lake: Lake) -> Iterator[Finding]:
    """Files that are damaged or not there, and what to do about the rows that were in them."""
    gone = {one.places[0]: one for one in lost(lake)}
    for aside in lake.set_aside():
        one = gone.pop(aside.place, None)
        if one is not None and one.is_mended:
            yield Finding(
                "lake",
                State.WARN,
                f"{aside.place} was damaged, and what was in it is stored again",
                f"remove {lake.root / FOLDER / aside.place}, which nobody needs any more",
            )
            continue
        folder, _, entry = aside.place.rpartition("/")
        root = lake.url or lake.root
        hint = f"put it back to {root}/{aside.place} from a backup"
        if one is not None:
            hint = one.hint(lake)
        elif folder == "commits" and fold_number(entry) is not None:
            hint = f"put {root}/{folder} of a backup back beside what is there"
        elif folder == "commits":
            told = sources_in_parts(lake, entry.removesuffix(".json"))
            of = f"ingest again what it stored: {', '.join(told)}" if told else "ingest it again"
            hint += f"; or {of}, and remove it if it is still there"
        else:
            hint += ", or ingest its source again (docs/operation.md)"
        yield Finding(
            "lake",
            State.FAIL,
            f"{aside.place} is damaged and its rows are missing: {aside.reason}",
            hint,
        )
    for one in together(one for one in gone.values() if not one.is_mended):
        yield Finding("lake", State.FAIL, one.sentence, one.hint(lake))
    for commit, place in back_again(lake):
        yield Finding(
            "lake",
            State.FAIL,
            f"{place} is back, and {commit.detail['source']} was ingested again while it was not: "
            "its rows are there twice",
            f"remove {lake.url or lake.root}/commits/{commit.id}.json, then ingest that input once "
            "more",
        )


def _sources(root: Path) -> Iterator[Finding]:
    if url_of(root) is None and not root.exists():
        return
    from steptax.app.views.health import SEE_DOCTOR, health_view
    from steptax.app.views.workspace import open_workspace

    view = health_view(open_workspace(root))
    for source in view.sources:
        if "silent" in source.state:
            age = format_age(source.lag_s or 0)
            yield Finding(
                "sources",
                State.WARN,
                f"{source.source}: {source.state}, last heard of {age} ago",
                "is the job still running? its own log says why its recorder stopped",
            )
        elif source.rejected > source.accepted:
            yield Finding(
                "sources",
                State.WARN,
                f"{source.source}: {source.rejected:,} rows rejected, {source.accepted:,} taken",
                "steptax health lists the reasons",
            )
    for warning in view.warnings:
        if not warning.endswith(SEE_DOCTOR):
            yield Finding("sources", State.WARN, warning, "steptax health")
    yield Finding("sources", State.OK, f"{len(view.sources):,} sources")


def _server(url: str) -> Iterator[Finding]:
    if not url.startswith(("http://", "https://")):
        raise UserError(f"expected an http address, found {url!r}", where="--url")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url.rstrip("/") + "/healthz", timeout=10.0) as answer:
            body = answer.read(10_000).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        said = error.read(10_000).decode("utf-8", "replace").strip()
        yield Finding(
            "server", State.FAIL, f"{url} answers {error.code}: {said}", "see the server's log"
        )
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        yield Finding(
            "server", State.FAIL, f"{url} does not answer: {reason}", "is steptax serve running?"
        )
    else:
        yield Finding("server", State.OK, f"{url} answers: {body.strip()}")
