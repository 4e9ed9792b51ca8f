"""Which process group a communication belongs to, where its event does not say."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from steptax.app.intervals import Ints
from steptax.connectors.kineto.header import Group

#: Worker threads of a gloo process group; a group's are started before those of the next one.
_GLOO_THREADS = 2

GLOO_NOTE = (
    "gloo records no process group: each communication counts for the group whose worker thread "
    "ran it, in the order in which the groups were made"
)


def fill_groups(
    labels: list[str | None], lanes: Ints, groups: tuple[Group, ...], *, gloo: bool
) -> tuple[list[str | None], str | None]:
    """``labels`` with what the process's groups imply, and a note where that is an inference.

    A process with one group has no choice. Of a gloo process with several, threads tell: each
    group starts two, in the order in which groups are made. Unless all of them are seen the label
    stays None.
    """
    unknown = [label is None for label in labels]
    if not any(unknown) or not groups:
        return labels, None
    if len(groups) == 1:
        return [label or groups[0].label for label in labels], None
    if not gloo:
        return labels, None
    owner = _owners(np.unique(lanes), len(groups))
    if owner is None:
        return labels, None
    filled: list[str | None] = [
        label or groups[owner[lane]].label
        for label, lane in zip(labels, lanes.tolist(), strict=True)
    ]
    return filled, GLOO_NOTE


def _owners(threads: npt.NDArray[np.int64], count: int) -> dict[int, int] | None:
    """Group of each thread; None unless all threads of all groups were seen at work.

    With one missing it would not be known whose it is.
    """
    if len(threads) != _GLOO_THREADS * count:
        return None
    return {thread: i // _GLOO_THREADS for i, thread in enumerate(threads.tolist())}
