"""``nvrx``: straggler reports of other tools, kept beside our own findings."""

from __future__ import annotations

from typing import ClassVar

from steptax.connectors.logs.connector import LogConnector
from steptax.connectors.logs.noise import read_failure, read_noise
from steptax.connectors.logs.straggler_lines import read_megatron_straggler, read_nvrx


class NvrxConnector(LogConnector):
    """Scores and flags of NVRx and of Megatron's ``--log-straggler``."""

    kind = "nvrx"
    version = 2
    title = "straggler reports of NVRx, and of Megatron --log-straggler"
    family = "a straggler report"
    level = 1
    sees: ClassVar = "scores of the ranks that a report lists, and which ones it flags"
    cannot_see: ClassVar = (
        "the ranks that a report does not list: only the worst and the best few are printed, so "
        "absence is no health"
    )
    dialects: ClassVar = {"nvrx": "NVRx", "megatron": "Megatron --log-straggler"}
    readers = (read_nvrx, read_megatron_straggler, read_failure, read_noise)
    doc = (
        "NVRx (nvidia-resiliency-ext): blocks 'GPU relative performance:' and 'GPU individual "
        "performance:' with 'Worst performing 5/512 ranks:' and 'Rank=76 Node=... Score=0.94', "
        "and warnings 'STRAGGLER DETECTION WARNING: ... Affected ranks: ...'. Megatron: lines "
        "'MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: ...' and '^^^^ Bottom 4 Ranks with lowest "
        "Etpt(TF): ...'; its power is in milliwatts, though it prints W, and is stored in W.\n"
        "Scores are stored as the tool's, not as ours. Only a few ranks are printed: a rank that "
        "is absent is not therefore sound. The kinds megatron and nemo read these reports too."
    )
