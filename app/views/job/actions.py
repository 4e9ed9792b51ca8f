"""What to do next, by what was found. One place, so that the card and the cost review agree."""

from __future__ import annotations

import shlex

from steptax.app.compute.causes.attribution import make_report
from steptax.app.compute.straggler.result import Kind, StragglerResult
from steptax.app.views.job.card_standing import leading_cause, standing
from steptax.app.views.job.cause_models import FindingRow

_BY_HINT = {
    "sequence_length": "balance the batches by the sum of squared sequence lengths",
    "input": "look at the data loader of that rank: workers, prefetch depth, storage latency",
    "checkpoint": "make checkpoints asynchronous, or spread their writing over the ranks",
    "h2d": "pin host memory and check the PCIe generation and width of that device",
    "gc": "disable automatic garbage collection and collect at the same step on every rank",
    "host": "profile that rank: launch gaps, Python time, CPU contention on its host",
    "other": "find out what the source counts as other time",
    "collective": "look at what that rank does in the collective around the library's call: "
    "packing and copying of gradients, hooks, CPU contention on its host",
    "slow_links": "look at that rank's adapter, cable and host (errors, rate, CPU contention); "
    "then take the rank to another host and probe again",
    "slow_compute": "compare that device's clock, throttle reasons and errors with its peers', "
    "then test it: steptax bench suspect --job {job} prints the commands and what the test costs; "
    "if it is slow there too, replace it",
}

_BY_VERDICT = {
    Kind.STAGE: "move layers off the heavy pipeline stage; the devices on it are not at fault",
    Kind.MOVING: "no rank to replace: balance the batches, synchronise garbage collection, "
    "look at noise on the hosts, or price backup workers and local SGD in What-if",
    Kind.MOST: "look for what the slower ranks share and the others do not: host, rack, device "
    "model, data; no single rank is to be replaced",
    Kind.SELDOM: "look at what that rank does in the steps in which it is late: a save, a log, an "
    "evaluation of its own; keep watching whether there come more",
    Kind.PASSED: "find out what began and what ended on that rank at these steps: a restart, a "
    "repair, another job on its host",
    Kind.NONE: "nothing to fix here; keep watching",
    Kind.UNTELLABLE: "record per-rank phases or collective time; the recorder does both",
}


def next_action(result: StragglerResult, findings: tuple[FindingRow, ...], job_id: str) -> str:
    """What is to be done about the cause that is named, else about what the phases hint at."""
    kind, hints = result.verdict.kind, result.explanation.hints
    now = standing(result, findings)
    why = leading_cause(result, findings, now)
    if why is not None:
        return _BY_VERDICT[Kind.PASSED] if now.is_over else why.next_action
    if kind is not Kind.WORKER:
        left_out, usual = result.verdict.left_out, _BY_VERDICT[kind]
        if left_out is None:
            return usual
        said = make_report(left_out)
        return said if kind in (Kind.NONE, Kind.MOVING) else f"{said}; {usual}"
    if not hints:
        return "record phases on that rank to name the cause"
    return _BY_HINT[hints[0].id].replace("{job}", shlex.quote(job_id))
