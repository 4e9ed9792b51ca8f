"""What was left out of the stored bills: rejected lines, and those that were replaced."""

from __future__ import annotations

from steptax.app.views.workspace import Workspace


def delivery_notes(ws: Workspace) -> tuple[str, ...]:
    """One note for each file of which lines are missing in all sums."""
    rejected = [
        f"{_lines(row['line_count'])} of {row['source']} rejected when it was ingested: "
        "without them the bill is short; steptax ingest names each with its reason"
        for row in ws.engine.run("bill_rejects").to_pylist()
    ]
    left_out = ws.engine.run("bill_replaced").to_pylist()
    replaced = [
        f"not counted: {_lines(row['line_count'])} of {row['file']}, replaced by "
        f"{row['replaced_by']}, which was ingested later"
        for row in left_out
        if not row["held_for"]
    ]
    held = [
        f"not counted: {_lines(row['line_count'])} of {row['file']}, since {row['held_for']} tells "
        "of the same account and time in another kind of file; ingest with --same-month to choose"
        for row in left_out
        if row["held_for"]
    ]
    return (*rejected, *replaced, *held)


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"
