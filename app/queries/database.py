"""The database in which questions are answered: a new one takes its place every now and then.

Measured on DuckDB 2.0.1: each join of a question leaves about 4 KB behind in its database, which
come back when that is closed. Its cache of files keeps 12 KB of each that was ever read and counts
0.5 KB of them, so that nothing of it is ever dropped: it is off. A server on a live job asks twenty
questions a second, of files that are new every second.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

#: Questions until the next database, which takes 20 ms to open; the old one holds a few MB then.
QUESTIONS = 300


class Database:
    """An empty in-memory database; every question has a cursor of its own.

    A connection that threads share gives errors and wrong values, so nothing here ever queries the
    connection itself.
    """

    def __init__(self, *, threads: int | None = None) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._asked = 0
        self._connection = self._opened()

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor for one question."""
        with self._lock:
            if self._asked >= QUESTIONS:
                # The old one lives until the last of its cursors is closed.
                self._connection, self._asked = self._opened(), 0
            self._asked += 1
            cursor = self._connection.cursor()
        try:
            yield cursor
        finally:
            cursor.close()

    def _opened(self) -> duckdb.DuckDBPyConnection:
        config: dict[str, str | bool | int | float | list[str]] = {
            "autoinstall_known_extensions": False,
            "enable_external_file_cache": False,  # files of this machine: the system caches them
        }
        if self._threads is not None:
            config["threads"] = self._threads
        connection = duckdb.connect(config=config)
        # The word that Spark has for it.
        connection.execute("CREATE MACRO explode(list) AS unnest(list)")
        return connection
