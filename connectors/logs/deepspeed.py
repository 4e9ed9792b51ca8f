"""``deepspeed``: logs of DeepSpeed's engine, with the wall-clock breakdown."""

from __future__ import annotations

from typing import ClassVar

from steptax.connectors.logs.connector import LogConnector
from steptax.connectors.logs.deepspeed_lines import read_deepspeed
from steptax.connectors.logs.noise import read_failure, read_noise


class DeepSpeedConnector(LogConnector):
    """Step lines, throughput and timers of DeepSpeed."""

    kind = "deepspeed"
    version = 2
    title = "logs of DeepSpeed with wall_clock_breakdown"
    family = "a DeepSpeed log"
    dialects: ClassVar = {"deepspeed": "DeepSpeed"}
    readers = (read_deepspeed, read_failure, read_noise)
    doc = (
        "Lines 'step=N, skipped=..., lr=...', 'RunningAvgSamplesPerSec=...' and "
        "'time (ms) | fwd: ... | bwd: ... | step: ...' that the engine prints on rank 0.\n"
        "DeepSpeed prints no step time: it is the time between two step lines, by their clock, "
        "over the steps between them. The breakdown is rank 0's own and is kept as printed; "
        "CurrSamplesPerSec leaves out what happens between steps and is often above the truth.\n"
        "In a Megatron-DeepSpeed log the Megatron lines tell more: use the kind megatron there."
    )
