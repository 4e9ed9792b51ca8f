"""Which device a row is of, and when and where it was taken."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Options, Run
from steptax.connectors.devices.quantities import Notes, fault_word, is_none, time_us
from steptax.connectors.prometheus.moments import moment_of
from steptax.connectors.schedulers.sacct import TIMEZONE, zone_of
from steptax.connectors.wholefile import job_of

#: Said where the times of a file have no zone.
LOCAL_TIME = "times have no zone and are taken as UTC: pass --timezone if they are local"
FILE_TIME = "the file holds no time: its last change is taken as the time of its values"


class SomethingSaid(Run):
    """Refuses a file that is over and told neither a row nor a reject: a header alone, say."""

    def __init__(self, source: Path, hint: str) -> None:
        self._source, self._hint = source, hint
        self._said = False

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Pass on."""
        self._said = self._said or batch.rows.num_rows > 0 or bool(batch.rejects)
        yield batch

    def close(self) -> Iterator[Batch]:
        """InputError where nothing was said."""
        if not self._said:
            raise InputError("tells of no device", where=str(self._source), hint=self._hint)
        return iter(())

    def flush(self) -> Iterator[Batch]:
        """A file that still grows may have nothing yet."""
        return iter(())


def host_of(source: str, options: Options, notes: Notes) -> str:
    """The node: ``--host``, else the file's name, and that is said."""
    told = options.extra.get("host")
    if told:
        return told
    name = job_of(Path(source), by_folder=False)
    notes.others.setdefault(f"the node is taken to be {name!r}, as the file is called: pass --host")
    return name


def changed_us(source: Path, options: Options) -> int:
    """The time of a file that holds none, microseconds: ``--at``, else its last change."""
    told = options.extra.get("at")
    return moment_of(told, "--at") if told else source.stat().st_mtime_ns // 1000


def moment_us(text: str, zone: tzinfo | None, notes: Notes) -> int | None:
    """Microseconds of the time ``text``; in UTC, and said so, where nothing names a zone."""
    found = time_us(text, zone or UTC)
    if found is None:
        return None
    if zone is None and not found[1]:
        notes.others.setdefault(LOCAL_TIME)
    return found[0]


def zone_named(options: Options) -> tzinfo | None:
    """The zone of local times that the person names; InputError for one that does not exist."""
    return zone_of(options) if options.extra.get(TIMEZONE) else None


def identify(row: dict[str, Any], ids: dict[str, str | None], place: int, notes: Notes) -> None:
    """Set ``gpu_uuid``: the UUID, else what there is, said to be no identity.

    ``ids`` may hold ``uuid``, ``pci`` and ``index``; ``place`` is the device's place among those
    of its moment, where nothing names it.
    """
    for name in ("uuid", "pci", "index"):
        found = ids.get(name)
        if found is None or fault_word(found) or is_none(found):
            continue
        if name == "uuid":
            row["gpu_uuid"] = found.strip()
            return
        row["gpu_uuid"] = f"{name} {found.strip()}"
        break
    else:
        row["gpu_uuid"] = f"place {place}"
    if not any(fault_word(text) for text in ids.values() if text is not None):
        notes.others.setdefault(
            "devices without a UUID are called by their place on the node and are not joined to "
            "ranks: add uuid to what is asked for"
        )
