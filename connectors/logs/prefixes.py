"""What launchers and log collectors put in front of the lines of the processes they run.

Each prefix comes off and leaves what it tells: the rank where it names one, else whose line it is,
so that the lines of several processes in one log are told apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Prefixes stand behind one another: a collector's, a launcher's, a process's own.
_NESTED = 6
_INT32 = 2**31

_ISO = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
#: kubectl logs --timestamps, docker logs -t, a node's own files of containers ("... stdout F ").
#: Their clock is UTC, or says its zone.
_STAMP = re.compile(rf"(?P<stamp>{_ISO})(?:[ \t](?:std(?:out|err) [FP](?:[ \t]|$))?|$)")
#: "Mar 01 10:00:00 node-3 python[123]: " of syslog and journalctl, also with its ISO dates.
_JOURNAL = re.compile(
    rf"(?:(?P<stamp>{_ISO})|[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?) "
    r"(?P<host>[\w.-]+) [\w.@/-]+\[(?P<pid>\d+)\]:(?: |$)"
)
#: [1,12]<stdout>: of Open MPI, [12]<stdout>: of Horovod, with a date in front where that is asked
#: for; [prterun-host-7@1,12]<stdout>: of Open MPI 5, whose first bracket may be lost;
#: [1,mpirank:12,algo-2]<stdout>: of SageMaker.
_MPIRUN = re.compile(
    r"(?P<date>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d 20\d\d[ \t]?)?"
    r"(?:\[|\[?[\w.-]+@)(?:\d+,)?(?:mpirank:)?(?P<rank>\d+)(?:,[\w.-]+)?\](?:\[[^\]\n]*\])?"
    r"<std(?:out|err|diag)>:[ \t]?"
)
#: [rank12]: of torchrun; [rank:12], [rank 12/64], "rank 12: " and "rank-12 | " of scripts. What
#: begins with "[Rank 12] " is a message of DeepSpeed's or Megatron's own, read as it stands.
_RANK = re.compile(
    r"(?:\[rank[ _-]?(?P<a>\d+)\]:|\[rank(?:[:=](?P<b>\d+)|[ _:=-]?(?P<c>\d+)/\d+)\]:?"
    r"|\(rank[ _:=-]?(?P<d>\d+)\):?|rank[ _-]?(?P<e>\d+)[ \t]*[:|])[ \t]?",
    re.I,
)
#: [12] of Intel MPI and MPICH, [12]: of torchrun's template for prefixes.
_BRACKET = re.compile(r"\[(?P<rank>\d{1,6})\](?::[ \t]?|[ \t]|$)")
#: A role and the number of a process on its node, as torchrun names it, and the rank where its
#: template has that: [trainer0|12]:.
_LOCAL = re.compile(r"\[(?P<process>(?:default|trainer|worker)\d+)(?:\|(?P<rank>\d+))?\]:[ \t]?")
_SRUN = re.compile(r"[ \t]*(?P<task>\d{1,6}):(?: |$)")
_HOST = re.compile(
    r"(?P<host>[A-Za-z][A-Za-z0-9.-]*\d[A-Za-z0-9.-]*|\d{1,3}(?:\.\d{1,3}){3}):(?: |$)"
)
#: "trainer/3 " of torchx.
_TORCHX = re.compile(r"(?!step|iter|epoch)(?P<replica>[a-z][a-z_-]*/\d{1,6})(?: |$)")
#: (head, rank=0, pid=123), (worker1, rank=1, pid=45, ip=10.0.0.2) of SkyPilot.
_SKYPILOT = re.compile(r"\((?P<node>[\w.-]+), rank=(?P<rank>\d+), pid=\d+[^)\n]*\) ?")
#: [2026-03-01T10:00:00.123Z] 0123abcd [rank=3] || of Determined.
_DETERMINED = re.compile(rf"\[(?P<stamp>{_ISO})\] (?:[0-9a-f]{{8}} )?\[rank=(?P<rank>\d+)\] \|\| ?")
#: "x1000c0s0b0n0.site 12: " of Cray's PALS.
_PALS = re.compile(r"(?P<host>[A-Za-z][\w.-]*\d[\w.-]*) (?P<rank>\d{1,7}):(?: |$)")
#: (TrainWorker pid=123, ip=10.0.0.1) of Ray.
_RAY = re.compile(
    r"\((?P<actor>[^\n=]{0,100}?)\bpid=(?P<pid>\d+)(?:, ip=(?P<ip>[\w.:-]+))?\)[ \t]?"
)
_RAY_REPEATED = re.compile(
    r"[ \t]*\[repeated \d+x across (?:cluster|all nodes)\](?: \(Ray deduplicates.*)?[ \t]*$"
)
#: [pod/job-worker-0/pytorch] of kubectl logs --prefix.
_POD = re.compile(r"\[pod/(?P<pod>[\w.-]+(?:/[\w.-]+)?)\][ \t]?")
#: "worker-0  | " of docker compose, "job.1.x@node-3    | " of a swarm.
_COMPOSE = re.compile(
    r"(?!step|iter|epoch)(?P<service>[A-Za-z][\w.@-]*\d[\w.@-]*)[ \t]+\|(?:[ \t]|$)", re.I
)


@dataclass(frozen=True, slots=True)
class Prefix:
    """What stood in front of a line. ``stamp`` is a moment with its zone, ``date`` one without."""

    host: str | None = None
    rank: int | None = None
    stamp: str | None = None
    date: str | None = None


def take_off(text: str) -> tuple[str, Prefix]:
    """``text`` without the prefixes of launchers, and what they tell."""
    host: str | None = None
    rank: int | None = None
    stamp: str | None = None
    date: str | None = None
    for _ in range(_NESTED):
        if (found := _JOURNAL.match(text)) is not None:
            stamp, host = stamp or found["stamp"], host or f"{found['host']} pid {found['pid']}"
        elif (found := _STAMP.match(text)) is not None:
            stamp = stamp or found["stamp"]
        elif (found := _DETERMINED.match(text)) is not None:
            stamp, rank = stamp or found["stamp"], small(found["rank"], rank)
        elif (found := _RANK.match(text)) is not None:
            rank = small(next(filter(None, found.groups())), rank)
        elif (found := _MPIRUN.match(text)) is not None:
            rank, date = small(found["rank"], rank), found["date"] or date
        elif (found := _BRACKET.match(text)) is not None:
            rank = small(found["rank"], rank)
        elif (found := _SKYPILOT.match(text)) is not None:
            host, rank = host or found["node"], small(found["rank"], rank)
        elif (found := _RAY.match(text)) is not None:
            worker = f"{found['ip'] or found['actor'].strip()} pid {found['pid']}".strip()
            host = host or worker
            text = _RAY_REPEATED.sub("", text)
        elif (found := _POD.match(text)) is not None:
            host = host or found["pod"]
        elif (found := _LOCAL.match(text)) is not None:
            host = f"{host} {found['process']}" if host else found["process"]
            rank = small(found["rank"] or "", rank)
        elif (found := _COMPOSE.match(text)) is not None:
            host = host or found["service"]
        elif (found := _PALS.match(text)) is not None:
            host, rank = host or found["host"], small(found["rank"], rank)
        elif (found := _HOST.match(text)) is not None:
            host = host or found["host"]
        elif (found := _TORCHX.match(text)) is not None:
            host = host or found["replica"]
        elif (found := _SRUN.match(text)) is not None:
            host = host or f"task {found['task']}"
        else:
            break
        text = text[found.end() :]
    return text, Prefix(host, rank, stamp, date)


def small(text: str, known: int | None) -> int | None:
    """A rank; what no rank can be leaves what was ``known``."""
    value = int(text) if 0 < len(text) < 11 else _INT32
    return value if value < _INT32 else known
