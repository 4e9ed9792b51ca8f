"""Which batches of a stream are stored: the highest number, and those below it that never came."""

from __future__ import annotations

from typing import Any, NamedTuple

#: Holes of a stream that are remembered; of more the lowest count as stored.
_MOST_HOLES = 256


class Mark(NamedTuple):
    """Of one stream. ``day`` is when it last grew, in days since 1970.

    A sender sends its batches in order, and one that it gave up leaves a hole for good. A number in
    a hole was never stored: a batch that comes with it late is taken like any other.
    """

    seq: int = 0
    day: int = 0
    holes: tuple[tuple[int, int], ...] = ()
    """First and last number of each, in order."""

    def holds(self, seq: int) -> bool:
        """True when batch ``seq`` has been stored."""
        return seq <= self.seq and not any(first <= seq <= last for first, last in self.holes)

    def with_batch(self, seq: int, day: int) -> Mark:
        """The same with batch ``seq``, which it does not hold, stored too."""
        if seq > self.seq:
            hole = ((self.seq + 1, seq - 1),) if seq > self.seq + 1 else ()
            return Mark(seq, day, (*self.holes, *hole)[-_MOST_HOLES:])
        rest: list[tuple[int, int]] = []
        for first, last in self.holes:
            if first <= seq <= last:
                rest += [part for part in ((first, seq - 1), (seq + 1, last)) if part[0] <= part[1]]
            else:
                rest.append((first, last))
        return Mark(self.seq, day, tuple(rest[-_MOST_HOLES:]))


def read_marks(state: dict[str, Any]) -> dict[str, Mark]:
    """Marks of a collector's state; raises KeyError, TypeError or ValueError for what is none."""
    holes = state.get("holes", {})
    return {
        str(stream): Mark(
            int(seq), int(day), tuple((int(a), int(b)) for a, b in holes.get(stream, ()))
        )
        for stream, (seq, day) in state["marks"].items()
    }


def write_marks(marks: dict[str, Mark]) -> dict[str, Any]:
    """The same as JSON. An older collector knows ``marks`` alone, and passes over the rest."""
    return {
        "marks": {stream: (mark.seq, mark.day) for stream, mark in marks.items()},
        "holes": {stream: mark.holes for stream, mark in marks.items() if mark.holes},
    }
