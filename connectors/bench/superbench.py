"""``superbench``: results of Microsoft's SuperBench."""

from __future__ import annotations

import re
from typing import Any

from steptax.app.errors import InputError
from steptax.connectors.bench.whole import BenchFileConnector, Found, positive
from steptax.connectors.values import short
from steptax.connectors.wholefile import numbered, whole_json

_METRIC = re.compile(r"(?P<test>[^:\s][^:]{0,200})(?::(?P<rank>\d{1,6}))?")
#: Unit by the name of a metric, as SuperBench's pages on micro- and model benchmarks give them;
#: the first that fits holds.
_UNITS = (
    (re.compile(r"gemm-flops.*/.*(iops)", re.I), "GOP/s"),
    (re.compile(r"gemm-flops.*/", re.I), "GFLOP/s"),
    (re.compile(r"kernel-launch.*/", re.I), "ms"),
    (re.compile(r"(nccl|rccl)-bw.*/.*_time$", re.I), "us"),
    (re.compile(r"(nccl|rccl)-bw.*/.*(algbw|busbw)$", re.I), "GB/s"),
    (re.compile(r"(mem-bw|gpu-copy-bw|gpu-sm-copy-bw)[^/]*/", re.I), "GB/s"),
    (re.compile(r"(steptime|step_time)", re.I), "ms"),
    (re.compile(r"throughput", re.I), "samples/s"),
)


class SuperBenchConnector(BenchFileConnector):
    """``results-summary.json`` and ``.jsonl`` of SuperBench."""

    kind = "superbench"
    version = 1
    title = "SuperBench: results-summary.json of a node, results-summary.jsonl of many"
    doc = (
        "results-summary.json (one node: metrics by name) and results-summary.jsonl (one object "
        "per node, which has a field node) of Microsoft's SuperBench.\n"
        "Gives bench_results, one row per metric and rank: benchmark/metric:RANK. The unit "
        "follows from the name where SuperBench's pages give one, else it is unknown: InfiniBand "
        "figures were MB/s before they were GB/s. A figure of 0 is a benchmark that did not "
        "measure and gives no row; a return code other than 0 is told.\n"
        "Run: --job, else the file's name; node: the file's, else --host."
    )
    sees = "figures of every benchmark, by rank, of one node or many"
    cannot_see = "the spread of a figure, the message sizes behind a name"
    marks = (b"/", b'"node"')
    is_not = "is no results-summary of SuperBench"
    hint = "name results-summary.json or results-summary.jsonl of an output folder"

    def take(self, text: str, found: Found, where: str) -> None:
        """See `BenchFileConnector.take`."""
        objects = _objects(text, found)
        if not objects:
            if found.rejects:
                return
            raise InputError(self.is_not, where=where, hint=self.hint)
        for line, metrics in objects:
            _take(metrics, line, found)


def _objects(text: str, found: Found) -> list[tuple[int, dict[str, Any]]]:
    """The one object of a file, or one of each line."""
    try:
        whole = whole_json(text)
    except ValueError:
        whole = None
    if isinstance(whole, dict):
        return [(1, whole)]
    out = []
    for number, line in numbered(text):
        if not line.strip():
            continue
        try:
            one = whole_json(line)
        except ValueError as error:
            found.reject(number, f"expected a JSON object: {error}", None, line[:200])
            continue
        if isinstance(one, dict):
            out.append((number, one))
        else:
            found.reject(number, f"expected a JSON object, found {short(one)}", None)
    return out


def _take(metrics: dict[str, Any], line: int, found: Found) -> None:
    node = metrics.get("node")
    host = node if isinstance(node, str) and node.strip() else found.host
    for name, said in metrics.items():
        if name == "node":
            continue
        metric = _METRIC.fullmatch(name)
        if metric is None or "/" not in name:
            found.reject(line, f"expected benchmark/metric, found {short(name)}", None)
            continue
        test = metric["test"]
        if test.endswith("return_code"):
            if said not in (0, None):
                found.notes.setdefault(f"{host}: {test[:80]} is {short(said)}: it failed")
            continue
        value = positive(said)
        if value is None:
            if said is not None and not (isinstance(said, (int, float)) and said == 0):
                found.reject(line, f"expected a number above 0, found {short(said)}", test[:80])
            continue
        unit = next((unit for pattern, unit in _UNITS if pattern.search(test)), None)
        rank = metric["rank"]
        found.add(
            line,
            device="all" if rank is None else f"rank {int(rank)}",
            test=test,
            size="as named",
            dtype="as named",
            value=value,
            unit=unit,
            host=host,
        )
