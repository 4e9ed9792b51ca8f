"""``megatron``: logs of Megatron-LM and its kin, 2021 to now."""

from __future__ import annotations

from typing import ClassVar

from steptax.connectors.logs.connector import LogConnector
from steptax.connectors.logs.deepspeed_lines import read_deepspeed_beside
from steptax.connectors.logs.megatron_facts import read_arguments, read_events, read_memory
from steptax.connectors.logs.megatron_lines import read_iteration, read_timers, read_validation
from steptax.connectors.logs.noise import read_failure, read_noise
from steptax.connectors.logs.straggler_lines import read_megatron_straggler, read_nvrx


class MegatronConnector(LogConnector):
    """Iteration lines, timers, checkpoints, evaluations and straggler reports of Megatron."""

    kind = "megatron"
    version = 2
    title = "logs of Megatron-LM, Megatron-DeepSpeed, Megatron-Bridge and Primus"
    family = "a Megatron log"
    dialects: ClassVar = {
        "megatron": "Megatron-LM",
        "megatron-deepspeed": "Megatron-DeepSpeed",
        "alcf": "Megatron-DeepSpeed (ALCF)",
        "primus": "Primus",
    }
    readers = (
        read_iteration,
        read_timers,
        read_megatron_straggler,
        read_nvrx,
        read_deepspeed_beside,
        read_validation,
        read_memory,
        read_events,
        read_arguments,
        read_failure,
        read_noise,
    )
    doc = (
        "The standard output of a training job, of one process or of many with the prefixes of "
        "torchrun, srun, mpirun or pdsh; colours do not matter; also packed by gzip.\n"
        "Step time is 'elapsed time per iteration' in ms: the mean over the log interval, as the "
        "printing rank measured it, so it is the job's step time and not each rank's. It stands "
        "under the rank that printed it (0 where the log does not say). Loss, grad norm, TFLOP/s, "
        "tokens/s, memory and all timers are kept as printed, as (min, max) over the ranks where "
        "they are printed so. A step number that goes back begins a new attempt. Checkpoints, "
        "evaluations, failures and the lines of --log-straggler are read as well.\n"
        "--dialect " + ", ".join(dialects) + "; it is detected where it is left out.\n"
        "--world-size gives the number of ranks where the log does not."
    )
