"""Whether moments can be dates at all."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

#: Start of the year 2000 in microseconds since 1970, UTC. What is measured here is younger by far:
#: an earlier moment is of a clock that counts from the start of a job or of a machine.
EARLIEST_US = 946_684_800_000_000


def clock_note(rows: pa.Table, column: str = "start_us") -> tuple[str, ...]:
    """A note where moments of ``rows`` lie before the year 2000; they are kept all the same."""
    if column not in rows.column_names:
        return ()
    first = pc.min(rows[column]).as_py()
    if first is None or first >= EARLIEST_US:
        return ()
    return (
        f"{column} lies before the year 2000 in some rows: their clock does not count from 1970. "
        "Durations hold, dates do not, nor days and months of what was paid: write moments since "
        "1970, or leave the column out",
    )
