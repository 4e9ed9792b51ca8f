"""The process of one rank that `launch_ranks.start_local` starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from steptax.benchmarks.hardware.collectives import Sweep, run_rank
from steptax.benchmarks.hardware.comm import Comm


def main(told: dict[str, Any]) -> None:
    """Run as the rank that ``told`` names; rank 0 leaves ``result.json`` in the folder."""
    said = told["sweep"]
    sweep = Sweep(**(said | {"operations": tuple(said["operations"])}))
    rank, folder = int(told["rank"]), Path(told["folder"])
    comm: Comm
    if told["torch"]:
        import torch

        from steptax.benchmarks.hardware.torch_comm import TorchComm

        meeting = f"file://{folder / 'meeting'}"
        comm = TorchComm(torch, rank=rank, size=told["size"], local_rank=rank, init_method=meeting)
    else:
        from steptax.benchmarks.hardware.shm_comm import ShmComm

        pipes = told["pipes"]
        comm = ShmComm(
            rank,
            pipes[rank][0],
            tuple(pipe[1] for pipe in pipes),
            told["memory_fd"],
            folder,
            told["most_bytes"],
        )
    try:
        found = run_rank(comm, sweep)
    finally:
        comm.close()
    if found is not None:
        (folder / "result.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
