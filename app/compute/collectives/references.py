"""What others measured: bus bandwidth of known machines, and what a node sends to the others.

Each row of the tables has its source. They are a figure to hold one's own against, never a target
for a machine of another kind; one's own acceptance run comes first.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from steptax.app.compute.collectives.bus_bandwidth import Collective

_DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class Reference:
    """Bus bandwidth that somebody measured, with where it was published."""

    device: str
    collective: Collective
    nodes: int
    ranks: int
    algorithm: str
    """``ring``, ``nvls``, or ``auto`` where the library chose and the source does not say."""
    size_bytes: int | None
    busbw_gb_per_s: float
    source: str


@cache
def references() -> tuple[Reference, ...]:
    """All published figures that we know, from ``data/busbw_reference.csv``."""
    with (_DATA / "busbw_reference.csv").open(newline="", encoding="utf-8") as file:
        return tuple(
            Reference(
                device=row["device"],
                collective=Collective.read(row["collective"]),
                nodes=int(row["nodes"]),
                ranks=int(row["ranks"]),
                algorithm=row["algorithm"],
                size_bytes=int(row["size_bytes"]) if row["size_bytes"] else None,
                busbw_gb_per_s=float(row["busbw_gb_per_s"]),
                source=row["source"],
            )
            for row in csv.DictReader(file)
        )


def expected_busbw(
    device: str, collective: Collective, *, nodes: int, ranks: int
) -> tuple[Reference, ...]:
    """Published figures of the same device, collective, node and rank count; maybe none."""
    return tuple(
        r
        for r in references()
        if r.device == device
        and r.collective is collective
        and (r.nodes, r.ranks) == (nodes, ranks)
    )


@dataclass(frozen=True)
class NodeNetwork:
    """What a node type sends to other nodes, in one direction."""

    system: str
    nics: int | None
    gbit_per_s_per_nic: float | None
    gb_per_s: float
    source: str


@cache
def node_networks() -> tuple[NodeNetwork, ...]:
    """Scale-out of known node types, from ``data/node_networks.csv``: an upper bound for busbw."""
    with (_DATA / "node_networks.csv").open(newline="", encoding="utf-8") as file:
        return tuple(
            NodeNetwork(
                system=row["system"],
                nics=int(row["nics"]) if row["nics"] else None,
                gbit_per_s_per_nic=float(row["gbit_per_s_per_nic"])
                if row["gbit_per_s_per_nic"]
                else None,
                gb_per_s=float(row["gb_per_s"]),
                source=row["source"],
            )
            for row in csv.DictReader(file)
        )
