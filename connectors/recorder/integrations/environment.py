"""What a launcher says of a process: torchrun, Slurm, Open MPI."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from steptax.connectors.recorder.recorder import StepRecorder

_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_JOB = ("STEPTAX_JOB_ID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID")
_ATTEMPT = ("STEPTAX_ATTEMPT", "SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT")
_LAKE = "STEPTAX_LAKE"


def recorder_from_environment(
    lake: str | os.PathLike[str] | None = None,
    job_id: str | None = None,
    environment: Mapping[str, str] = os.environ,
    **options: Any,
) -> StepRecorder:
    """A recorder of this rank, not started; ``options`` are further ones of `StepRecorder`.

    ``lake`` is STEPTAX_LAKE if None; ``job_id`` STEPTAX_JOB_ID, else the launcher's. A process that
    no launcher started is rank 0 of 1. Without a lake, or with a rank and no world size, nothing is
    recorded: a warning of the logger ``steptax.recorder`` says so.
    """
    given = dict(options)
    rank, world = _first(environment, _RANK), _first(environment, _WORLD)
    given.setdefault("rank", _whole(rank, 0))
    # A rank whose peers nobody counts has no job to be part of: the recorder refuses None.
    given.setdefault("world_size", _whole(world, 1 if rank is None else None))
    given.setdefault("attempt", _whole(_first(environment, _ATTEMPT), 0))
    place: Any = lake if lake is not None else environment.get(_LAKE)
    job = job_id if job_id is not None else _first(environment, _JOB)
    if job in (None, "none"):  # torchrun's name of a run without one
        job = f"run-{os.getppid()}" if rank is not None else f"run-{os.getpid()}"
    return StepRecorder(place, job, **given)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def _whole(text: str | None, otherwise: int | None) -> Any:
    """The number that ``text`` is; ``text`` itself where it is none, for the recorder to refuse."""
    if text is None:
        return otherwise
    return int(text) if text.isascii() and text.isdigit() else text
