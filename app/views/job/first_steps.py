"""What is said of a job whose first steps are being read: who is slow, and not yet why.

Who makes the others wait shows within a few dozen steps. What makes that rank slow is told by
relations over many steps (work and sequence length, clock and time), and in the first ones the
absence of a relation is no evidence: a cause that is not named yet is not "device, host or kernel".
"""

from __future__ import annotations

from dataclasses import replace

from steptax.app.views.job.models import Card, JobHeader
from steptax.app.views.models import Coverage, Window

#: Steps from which the absence of a cause is told: two of the windows that findings are sought in.
FIRST_STEPS = 128
#: How the words for compute that is slow without a cause begin: of a finding, and of a hint.
_NO_CAUSE = ("cause not named: compute is slow", "slow compute")
_DEMO = "steptax-demo"
#: What takes the place of ``first_steps_text`` on a page that showed it, so that nothing below it
#: jumps: about as long as that.
FIRST_STEPS_READ = (
    f"The first {FIRST_STEPS} steps are read. Who is slow, and why as far as it shows, stands "
    "below, and gets surer with every step that comes."
)


def first_steps_text(coverage: Coverage, window: Window) -> str | None:
    """That a running job has too few steps for a cause; None where it has enough, or goes on no
    more.
    """
    stored = window.stored_last_step - window.stored_first_step + 1
    if not coverage.is_live or coverage.stale or stored >= FIRST_STEPS:
        return None
    return (
        f"Reading the first steps: {stored:,} so far. Who is slow is told at once and gets surer; "
        f"why is told from step {FIRST_STEPS} on, or as soon as it shows."
    )


def held_back(card: Card, said: str | None) -> Card:
    """``card`` without the words for a cause that was not found, while ``said`` stands."""
    if said is None or not card.probable_cause.startswith(_NO_CAUSE):
        return card
    return replace(
        card,
        probable_cause=f"not told yet: the first {FIRST_STEPS} steps are being read",
        would_settle=(),
        next_action=f"let it run to step {FIRST_STEPS}; there is nothing to do before that",
    )


def demo_text(header: JobHeader) -> str | None:
    """What the demo is and what to read first on its page; None for any other job."""
    if not (header.framework or "").startswith(_DEMO):
        return None
    ranks = "" if header.world_size is None else f" with {header.world_size:,} workers"
    slow = (
        "none of them is made slow"
        if header.name == "demo (none)"
        else "one of them is made slow on purpose, for Steptax to find"
    )
    return (
        f"This is the demo: a small model that trains for real on this machine{ranks}; {slow}. "
        "Read the sentence first, then the card (who, why, what it costs, what to do), then the "
        "map under “Who is slow, when”."
    )
