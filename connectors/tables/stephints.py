"""What to tell a person whose file has times but no duration: the ``--map`` line to type."""

from __future__ import annotations

from collections.abc import Sequence

from steptax.connectors.tables.columns import plain, split_unit

_WHOLE = {"wall", "total", "elapsed"}
_COMM = {"wait", "comm", "communication", "allreduce", "collective", "nccl", "sync"}
_COMPUTE = {"compute", "forward", "fwd", "backward", "bwd", "optimizer", "optimiser"}
_MOMENT = {"ts", "timestamp", "start", "begin", "end"}
_DEFAULT = "say which columns make it up: --map duration=COLUMN, or a sum A+B"


def suggest_mapping(columns: Sequence[str]) -> str:
    """A hint with the ``--map`` arguments that fit the time columns among ``columns``.

    Where a column says that it is wall time it already holds the parts that share its first word
    (``backward_wall_ms`` holds ``backward_compute_ms``) and the waiting, so these are not added
    to the duration; what is left of them describes compute and comm.
    """
    timed = [c for c in columns if split_unit(c)[1] and _first(c) not in _MOMENT]
    if not timed:
        return _DEFAULT
    whole = [c for c in timed if _words(c) & _WHOLE]
    covered = {_first(c) for c in whole}
    comm = [c for c in timed if _words(c) & _COMM and c not in whole]
    inside = [c for c in timed if _first(c) in covered and c not in whole]
    outside = [c for c in timed if c not in (*whole, *comm, *inside)]
    if not whole:
        return "if these are its disjoint parts: --map duration=" + "+".join(timed)
    hints = ["--map duration=" + "+".join(c for c in timed if c in whole or c in outside)]
    compute = [c for c in timed if c in (*inside, *outside) and _words(c) & _COMPUTE]
    if covered <= {_first(c) for c in compute}:
        hints.append("--map compute=" + "+".join(compute))
        if comm:
            hints.append("--map comm=" + "+".join(comm))
    return "for these columns: " + " ".join(hints)


def _words(column: str) -> set[str]:
    return set(plain(column).split("_"))


def _first(column: str) -> str:
    return plain(column).partition("_")[0]
