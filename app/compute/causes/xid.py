"""What an Xid error of an NVIDIA device means for the node.

The table follows NVIDIA's Xid catalogue as aws-samples/awsome-distributed-training groups it
(2.gpu-cluster-healthcheck, MIT-0): isolate the node, reboot it, reset the device, watch it, or
nothing. Where it depends on the machine (74, 159) the graver action stands.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from steptax.app.compute.bench.compare import Status

_TABLE = Path(__file__).parents[1] / "data" / "xid_severity.csv"
_STATUS = {
    "isolate": Status.REJECT,
    "reboot": Status.REJECT,
    "reset": Status.REJECT,
    "monitor": Status.WATCH,
    "none": Status.PASS,
}


@dataclass(frozen=True)
class XidMeaning:
    """Group and action of a code, and what follows for acceptance."""

    xid: int
    group: str
    action: str
    status: Status


@cache
def _rows() -> dict[int, tuple[str, str]]:
    with _TABLE.open(newline="", encoding="utf-8") as file:
        return {int(row["xid"]): (row["group"], row["action"]) for row in csv.DictReader(file)}


def xid_meaning(xid: int) -> XidMeaning:
    """The meaning of a code; one that is not in the table is to be watched."""
    group, action = _rows().get(xid, ("not in the table", "monitor"))
    return XidMeaning(xid, group, action, _STATUS[action])
