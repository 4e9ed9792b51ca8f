"""What lies in the folders of a lake, listed anew only where a folder may have changed.

A fleet of thousands of jobs has a folder per job and table, and every page asks for the version of
all of them. A folder's time of modification changes when a segment is added, renamed or removed. It
has a grain of some milliseconds, so a listing is kept only once the folder has been left alone for
``SETTLED_NS``; one that was written to just now is listed again.
"""

from __future__ import annotations

import os
import time
from threading import Lock

from steptax.app.lake.segments import Name, job_of_folder, parse_name

SETTLED_NS = 2_000_000_000


class Listing:
    """The segments and the jobs of folders; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._read: dict[str, tuple[tuple[str, ...], list[tuple[str, Name]]]] = {}

    def entries(self, folder: str) -> tuple[str, ...]:
        """Names in ``folder``, sorted; none where it is not there."""
        try:
            changed_ns = os.stat(folder).st_mtime_ns
            known = self._known.get(folder)
            if known is not None and known[0] == changed_ns:
                return known[1]
            # Read before the names are: what comes later has a later time.
            is_settled = time.time_ns() - changed_ns > SETTLED_NS
            found = tuple(sorted(os.listdir(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        with self._lock:
            if is_settled:
                self._known[folder] = changed_ns, found
            else:
                self._known.pop(folder, None)
        return found

    def segments(self, folder: str) -> list[tuple[str, Name]]:
        """The segments in ``folder`` by name, and what their names say."""
        entries = self.entries(folder)
        known = self._read.get(folder)
        if known is not None and known[0] is entries:
            return known[1]
        found = [(entry, name) for entry in entries if (name := parse_name(entry)) is not None]
        with self._lock:
            self._read[folder] = entries, found
        return found

    def jobs(self, folder: str) -> list[str]:
        """The jobs that have a folder in ``folder``, sorted."""
        return sorted(job for e in self.entries(folder) if (job := job_of_folder(e)) is not None)
