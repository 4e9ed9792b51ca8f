"""Ranks that call different things under the same number of a communicator."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from steptax.app.compute.collectives.calls import Call
from steptax.app.compute.spoken import spoken_list

#: Operations of which all ranks must give the same sizes; others may differ by rank.
_SAME_SIZES = {"all_reduce", "broadcast", "reduce_scatter", "reduce"}
#: Operations that are compared by nothing but their name.
_UNSIZED = {"barrier"}


@dataclass(frozen=True)
class Mismatch:
    """One number under which the ranks of a communicator do not call the same."""

    comm_id: str
    seq: int
    field: str
    """``operation``, ``type`` or ``sizes``."""
    said: tuple[tuple[str, tuple[int, ...]], ...]
    """What is called, with its ranks; what most ranks call first."""
    odd_ranks: tuple[int, ...]
    """Those that call what fewer do; none where there is no majority."""
    text: str


def mismatches(calls: Sequence[Call], names: dict[str, str], limit: int = 50) -> list[Mismatch]:
    """The first numbers of each communicator under which ranks differ, at most ``limit``.

    After one difference the numbers of a communicator no longer belong together, so only its
    first is told.
    """
    by_key: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in calls:
        if not call.is_transfer:
            by_key[call.comm_id, call.seq].append(call)
    found: dict[str, Mismatch] = {}
    for (comm, _), together in sorted(by_key.items()):
        if comm not in found and len(together) > 1:
            mismatch = _compare(together, names.get(comm, comm))
            if mismatch:
                found[comm] = mismatch
    return list(found.values())[:limit]


def _compare(together: list[Call], group: str) -> Mismatch | None:
    fields: dict[str, list[str | None]] = {
        "operation": [call.op for call in together],
        "type": [None if call.op in _UNSIZED else call.dtype for call in together],
        "sizes": [call.shape if call.op in _SAME_SIZES else None for call in together],
    }
    for field, values in fields.items():
        known = Counter(value for value in values if value is not None)
        if len(known) < 2:
            continue
        ordered = known.most_common()
        said = tuple(
            (
                value,
                tuple(sorted(c.rank for c, v in zip(together, values, strict=True) if v == value)),
            )
            for value, _ in ordered
        )
        majority = ordered[0][1] > ordered[1][1]
        odd = sorted(rank for _, ranks in said[1:] for rank in ranks) if majority else []
        parts = [f"{value} on rank {spoken_list(ranks)}" for value, ranks in said[:3]]
        first = together[0]
        text = f"operation {first.seq:,} of {group} differs in {field}: {'; '.join(parts)}"
        return Mismatch(first.comm_id, first.seq, field, said, tuple(odd), text)
    return None
