"""What the page server counts of itself, in the text format that Prometheus reads.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, version 0.0.4). No name
of a job, a team or a person is among it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Upper edges of the histogram of page runs, in seconds.
EDGES_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Labels = tuple[tuple[str, str], ...]


class Telemetry:
    """Counters, gauges and one histogram; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counters: dict[tuple[str, Labels], float] = {}
        self._gauges: dict[str, tuple[str, Callable[[], float | None]]] = {}
        self._runs: dict[str, list[float]] = {}
        self._help = {
            "steptax_http_requests_total": "Requests by method and status.",
            "steptax_page_errors_total": "Runs of a page that ended in an error, by page.",
        }

    def count(self, name: str, **labels: str) -> None:
        """One more of ``name`` with ``labels``."""
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            self._counters[key] = self._counters.get(key, 0.0) + 1

    def gauge(self, name: str, about: str, read: Callable[[], float | None]) -> None:
        """A value that is read when it is asked for; None leaves it out."""
        with self._lock:
            self._gauges[name] = about, read

    @contextmanager
    def page_run(self, page: str) -> Iterator[None]:
        """Time one run of a page, also one that fails."""
        begin_s = time.perf_counter()
        try:
            yield
        except Exception:
            self.count("steptax_page_errors_total", page=page)
            raise
        finally:
            took_s = time.perf_counter() - begin_s
            with self._lock:
                held = self._runs.setdefault(page, [0.0] * (len(EDGES_S) + 2))
                for k, edge in enumerate(EDGES_S):
                    held[k] += took_s <= edge
                held[-2] += 1
                held[-1] += took_s

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        with self._lock:
            counters, gauges = dict(self._counters), dict(self._gauges)
            runs = {page: list(held) for page, held in self._runs.items()}
        lines: list[str] = []
        for name, about in self._help.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} counter"]
            lines += [
                f"{name}{_labels(labels)} {_number(value)}"
                for (of, labels), value in sorted(counters.items())
                if of == name
            ]
        name = "steptax_page_run_seconds"
        lines += [f"# HELP {name} Time of a run of a page.", f"# TYPE {name} histogram"]
        for page, held in sorted(runs.items()):
            for edge, count in zip([*EDGES_S, "+Inf"], held[:-1], strict=True):
                labels = (("page", page), ("le", str(edge)))
                lines.append(f"{name}_bucket{_labels(labels)} {_number(count)}")
            lines.append(f"{name}_sum{_labels((('page', page),))} {held[-1]!r}")
            lines.append(f"{name}_count{_labels((('page', page),))} {_number(held[-2])}")
        for name, (about, read) in sorted(gauges.items()):
            found = read()
            if found is not None:
                lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
                lines.append(f"{name} {_number(found)}")
        return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


#: Of this process.
TELEMETRY = Telemetry()
