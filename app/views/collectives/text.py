"""What a job's collectives say, in a sentence and in lines."""

from __future__ import annotations

from steptax.app.compute.collectives.arrivals import CollectiveArrivals
from steptax.app.views.collectives.view import CollectivesView

TITLE = "Collectives"


def verdict(view: CollectivesView) -> str:
    """Who holds up a hang, else who comes last, else that nobody does or why it is not known."""
    hang = view.hang
    if hang.reason is None and (hang.suspects or hang.mismatches or hang.pending or hang.waiting):
        return hang.verdict
    late = latest(view)
    if late is not None:
        return late_line(view, late)
    if hang.reason is None:
        return hang.verdict
    if view.arrivals:
        # The one of which most is recorded says best why nobody is named.
        most = max(view.arrivals, key=lambda found: (found.joined, found.operations))
        return f"{view.names.get(most.comm_id, most.comm_id)}, {most.op}: {most.verdict}"
    return hang.verdict


def latest(view: CollectivesView) -> CollectiveArrivals | None:
    """The named late rank that makes its peers wait longest in all; None where none is named."""
    named = [found for found in view.arrivals if found.late_rank is not None]
    return max(named, key=lambda found: found.waiting.value or 0.0, default=None)


def late_line(view: CollectivesView, found: CollectiveArrivals) -> str:
    """Who comes last to the operations of one communicator, and where it runs."""
    place = view.place(found.comm_id, found.late_rank or 0)
    where = view.names.get(found.comm_id, found.comm_id)
    return f"{where}: {found.verdict}" + (f" It is {place}." if place else "")


def hang_lines(view: CollectivesView) -> tuple[str, ...]:
    """Suspects with what speaks against each, what is missing from the record, what is assumed."""
    hang = view.hang
    if hang.reason is not None:
        return ()
    lines = [f"{suspect.label}: {', '.join(suspect.kinds)}." for suspect in hang.suspects]
    lines += [mismatch.text for mismatch in hang.mismatches]
    if hang.recorded_ranks:
        of = "" if hang.expected_ranks is None else f" of {hang.expected_ranks:,}"
        lines.append(f"{hang.recorded_ranks:,}{of} ranks are recorded.")
    return (*lines, *(f"Assumed: {assumption}." for assumption in hang.assumptions))


def evidence(view: CollectivesView) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each suspect of a hang with the evidence against it."""
    if view.hang.reason is not None:
        return ()
    return tuple((suspect.label, suspect.evidence) for suspect in view.hang.suspects)
