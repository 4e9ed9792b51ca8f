"""What to do next, by what was found. One place, so that page, command and report agree."""

from __future__ import annotations

from steptax.app.compute.straggler_result import Kind

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
    "then test it: steptax bench suspect --job prints the commands and what the test costs; if it "
    "is slow there too, replace it",
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


def next_action(kind: Kind, hint_id: str | None) -> str:
    """One line for the card."""
    if kind is Kind.WORKER:
        return _BY_HINT[hint_id] if hint_id else "record phases on that rank to name the cause"
    return _BY_VERDICT[kind]
