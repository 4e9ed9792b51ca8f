"""What is on this machine that Steptax can read, for somebody who has nothing connected yet.

Looks at the devices (NVML), at Slurm's ``sacct``, at the usual ports of Prometheus and its
exporters on this machine, for lakes and for files of training jobs in the usual folders, and at the
small files of the working directory, which are tried as ``steptax ingest`` tries them. Each look is
short and ends by itself; none leaves the machine, and none needs any of the others.
"""

from __future__ import annotations

import getpass
import http.client
import itertools
import os
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from steptax.app.first_files import recognised_in
from steptax.app.words import count_text

LOOPBACK = "127.0.0.1"
#: Seconds that a server of this machine, a driver or a command may take to answer.
ANSWER_S = 0.5
COMMAND_S = 3.0
#: Seconds that the files of the working directory may take, the importing of what reads them too.
FILES_S = 15.0
#: Bounds of the walk over folders.
WALK_S, WALK_ENTRIES, WALK_DEPTH = 1.0, 5_000, 3
#: Where PyTorch leaves the dumps of its flight recorder; what lies deeper is somebody's scratch.
DUMPS = Path("/tmp")
#: Lakes, and folders of one kind of file, that are offered: the newest, and the fullest.
OFFERED = 3
#: What tells a lake from any other folder.
LAKE_MARK = "LAKE.json"
#: Folders that programs fill with files of their own.
_SKIPPED = frozenset({"node_modules", "site-packages", "__pycache__", "proc", "sys"})

Source = Literal["devices", "accounting", "server", "lake", "files"]


@dataclass(frozen=True)
class Offer:
    """One thing that was found, and how it is connected."""

    source: Source
    title: str
    """What it is, e.g. ``8 NVIDIA devices``."""
    gives: str
    """What connecting it tells, in a few words."""
    command: str
    kind: str | None = None
    """Connector that reads it at once; None where only the command connects it."""
    target: str | None = None
    """Folder or address that ``kind`` reads."""
    files: tuple[Path, ...] = ()
    """The files that ``kind`` reads, where not all of a folder are meant."""

    @property
    def can_connect(self) -> bool:
        """Whether a button can do it: what keeps running is a command."""
        return self.kind is not None


@dataclass(frozen=True)
class _Pattern:
    """Files of one kind, by their names."""

    kind: str
    title: str
    gives: str
    matches: Callable[[str], bool]


_PATTERNS = (
    _Pattern(
        "kineto",
        "traces of torch.profiler",
        "compute, exposed communication, idle time and its causes; what a faster kernel is worth",
        lambda name: name.endswith((".pt.trace.json", ".pt.trace.json.gz")),
    ),
    _Pattern(
        "tensorboard",
        "event files of TensorBoard",
        "the loss over time, set against the dollars that were paid",
        lambda name: name.startswith("events.out.tfevents."),
    ),
    _Pattern(
        "wandb",
        "runs of Weights & Biases",
        "the loss over time, set against the dollars that were paid",
        lambda name: name.startswith("run-") and name.endswith(".wandb"),
    ),
    _Pattern(
        "flight-recorder",
        "dumps of PyTorch's flight recorder",
        "which rank is behind, or missing, in a collective that hangs",
        lambda name: name.startswith("nccl_trace_rank_"),
    ),
)


def found_here(
    *,
    folders: Sequence[Path] | None = None,
    ports: Sequence[tuple[str, int]] | None = None,
    but: Path | None = None,
) -> tuple[Offer, ...]:
    """Everything that was found, in the order in which it tells most; empty where there is nothing.

    ``folders`` are looked through for lakes and files; else the working directory, the home and
    where services keep theirs. Of the first of them the small files are tried too. ``ports`` are
    (connector, port) of servers of this machine. ``but`` is the lake that is open already.
    """
    places = usual_folders() if folders is None else list(folders)
    looks: tuple[tuple[float, Callable[[], Sequence[Offer]]], ...] = (
        (COMMAND_S + ANSWER_S, _devices),
        (COMMAND_S + ANSWER_S, _slurm),
        (
            COMMAND_S + ANSWER_S,
            lambda: [
                o
                for kind, port in (PORTS if ports is None else ports)
                if (o := _server(kind, port))
            ],
        ),
        (COMMAND_S + ANSWER_S, lambda: _in_folders(places, but)),
        (FILES_S, lambda: _by_content(places[0]) if places else []),
    )
    results: list[Sequence[Offer]] = [()] * len(looks)

    def look(index: int) -> None:
        results[index] = looks[index][1]()

    # Side by side: a driver or a disk that hangs holds up nobody, and is left behind.
    threads = [threading.Thread(target=look, args=(i,), daemon=True) for i in range(len(looks))]
    for thread in threads:
        thread.start()
    begin = time.monotonic()
    for thread, (limit_s, _) in zip(threads, looks, strict=True):
        thread.join(max(0.0, begin + limit_s - time.monotonic()))
    return tuple(offer for found in results for offer in found)


def demo_lake() -> Path:
    """Where ``steptax demo`` keeps its jobs: a folder of this user's own.

    A bill that somebody stored there counts before any price, and names none of the demo's jobs:
    then it is the next folder that holds none.
    """
    own = Path(tempfile.gettempdir()) / f"steptax-demo-{getpass.getuser()}"
    others = (own.with_name(f"{own.name}-{number}") for number in itertools.count(2))
    places = itertools.chain((own,), others)
    return next(place for place in places if not (place / "tables" / "charges").is_dir())


def usual_folders() -> list[Path]:
    """Where jobs and services usually leave their files, once each."""
    home = Path(os.path.expanduser("~"))
    services = (Path("/var/lib/steptax"), Path("/data"), Path("/shared"))
    names = (Path.cwd(), home, *services, demo_lake(), DUMPS)
    return list(dict.fromkeys(place.resolve() for place in names if place.is_dir()))


def _devices() -> list[Offer]:
    try:
        import pynvml

        pynvml.nvmlInit()
        count = int(pynvml.nvmlDeviceGetCount())
        first = str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)))
        pynvml.nvmlShutdown()
    except Exception:  # no driver, no library, no device, one that broke: nothing to offer
        return []
    return [
        Offer(
            "devices",
            f"{count} {first}{'' if count == 1 else ' each'}",
            "utilisation, power, clocks, throttling and errors of every device of this node",
            "steptax watch nvml",
        )
    ]


def _slurm() -> list[Offer]:
    if shutil.which("sacct") is None:
        return []
    try:
        done = subprocess.run(
            ["sacct", "--version"],
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode != 0:
        return []
    return [
        Offer(
            "accounting",
            f"Slurm's accounting ({done.stdout.strip() or 'sacct'})",
            "jobs, their GPU-hours, states and waiting times",
            "steptax watch slurm --from -30d",
        )
    ]


#: (connector, port) of what usually runs beside devices.
PORTS = (("prometheus", 9090), ("dcgm", 9400), ("node-exporter", 9100))
_ASKED = {
    "prometheus": ("/api/v1/status/buildinfo", b'"version"'),
    "dcgm": ("/metrics", b"DCGM_FI_"),
    "node-exporter": ("/metrics", b"node_"),
}
_GIVES = {
    "prometheus": ("Prometheus", "all device metrics that it scraped, also of the past"),
    "dcgm": ("dcgm-exporter", "the devices of this node, with profiling counters"),
    "node-exporter": ("node-exporter", "processors, memory, disks and network of this node"),
}


def _server(kind: str, port: int) -> Offer | None:
    """The server at ``port`` of this machine, if it is one that ``kind`` reads."""
    path, mark = _ASKED[kind]
    asked = http.client.HTTPConnection(LOOPBACK, port, timeout=ANSWER_S)
    try:
        asked.request("GET", path)
        answer = asked.getresponse()
        body = answer.read(1 << 18)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        asked.close()
    if answer.status != 200 or mark not in body:
        return None
    name, gives = _GIVES[kind]
    command = f"steptax watch {kind} http://{LOOPBACK}:{port}"
    return Offer("server", f"{name} on port {port}", gives, command)


def _in_folders(folders: Sequence[Path], but: Path | None) -> list[Offer]:
    """Lakes and files of jobs: one offer a lake, one for each kind and folder."""
    lakes: list[Path] = []
    files: dict[tuple[str, Path], int] = {}
    for folder in folders:
        for place, names in _walk(folder):
            if LAKE_MARK in names:
                # A lake in which nothing was ever stored has nothing to show.
                holds = next((place / "tables").glob("*"), None) is not None
                if holds and (but is None or place != but.resolve()):
                    lakes.append(place)
                continue
            for pattern in _PATTERNS:
                count = sum(map(pattern.matches, names))
                if count:
                    key = pattern.kind, place
                    files[key] = files.get(key, 0) + count
    newest = sorted(dict.fromkeys(lakes), key=_changed_s, reverse=True)[:OFFERED]
    found = [
        Offer(
            "lake",
            f"a lake in {lake}",
            "everything that was stored there",
            f"steptax serve --lake {shlex.quote(str(lake))}",
        )
        for lake in newest
    ]
    for pattern in _PATTERNS:
        places = [(count, place) for (kind, place), count in files.items() if kind == pattern.kind]
        places.sort(key=lambda one: (-one[0], one[1]))
        found += [
            Offer(
                "files",
                f"{count:,} {pattern.title} in {place}",
                pattern.gives,
                f"steptax ingest {pattern.kind} {shlex.quote(str(place))}",
                pattern.kind,
                str(place),
            )
            for count, place in places[:OFFERED]
        ]
    return found


def _by_content(folder: Path) -> list[Offer]:
    """Files of ``folder`` that a connector reads, one offer for each kind."""
    offers = []
    for found in recognised_in(folder, _has_pattern):
        names = [file.name for file in found.files]
        offer = Offer(
            "files",
            f"{names[0]} in {folder}, read as {found.kind}"
            if len(names) == 1
            else f"{count_text(len(names), 'file')} in {folder}, read as {found.kind}: {names[0]} "
            f"to {names[-1]}",
            found.gives,
            "",
            found.kind,
            str(folder),
            found.files,
        )
        job = job_name(offer)
        words = ["steptax", "ingest", found.kind, *map(str, found.files)]
        offers.append(
            replace(offer, command=shlex.join([*words, *(["--job", job] if job else [])]))
        )
    return offers


def _has_pattern(name: str) -> bool:
    return any(pattern.matches(name) for pattern in _PATTERNS)


def _changed_s(lake: Path) -> float:
    try:
        return (lake / "commits").stat().st_mtime
    except OSError:
        return 0.0


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders under ``folder`` with the names in them, not deep, not many, not long."""
    end, left = time.monotonic() + WALK_S, WALK_ENTRIES
    deepest = 0 if folder == DUMPS else WALK_DEPTH
    ahead = [(folder, 0)]
    while ahead and left > 0 and time.monotonic() < end:
        place, depth = ahead.pop(0)
        names: list[str] = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    left -= 1
                    if left <= 0:
                        break
                    if not entry.is_dir(follow_symlinks=False):
                        names.append(entry.name)
                    elif depth < deepest and entry.name[0] != "." and entry.name not in _SKIPPED:
                        ahead.append((Path(entry.path), depth + 1))
        except OSError:
            continue
        yield place, names


def connect(offer: Offer, lake_root: Path) -> str:
    """Read what ``offer`` found into the lake at ``lake_root``; returns what came of it.

    Raises what the reading of files raises; nothing but files is read this way.
    """
    from steptax.app.ingest import ingest_file, ingest_folder
    from steptax.app.lake import lake_at
    from steptax.connectors.base import Options

    assert offer.kind is not None
    assert offer.target is not None
    place = Path(offer.target)
    store = lake_at(lake_root, create=True)
    options = Options(job_id=job_name(offer))
    if offer.files:
        results = [ingest_file(store, offer.kind, file, options) for file in offer.files]
        notes = list(dict.fromkeys(note for result in results for note in result.notes))
    else:
        results, notes = ingest_folder(store, offer.kind, place, options)
    rows = sum(sum(result.accepted.values()) for result in results)
    refused = sum(sum(result.rejected.values()) for result in results)
    said = f"{rows:,} rows from {count_text(len(results), 'file')}"
    if refused:
        said += f", {refused:,} refused"
    return "; ".join([said, *notes])


def job_name(offer: Offer) -> str | None:
    """The job that a folder of traces is of; None where the files name their jobs themselves."""
    if offer.kind not in ("kineto", "flight-recorder") or offer.target is None:
        return None
    return Path(offer.target).name or None
