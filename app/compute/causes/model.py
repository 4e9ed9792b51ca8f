"""What a finding says: who is slow and when, why, by what evidence, and what would settle it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from steptax.app.compute.spoken import spoken_ratio


class Cause(StrEnum):
    """Causes that can be named."""

    THERMAL = "thermal"
    POWER_CAP = "power_cap"
    CLOCKS = "clocks"
    ECC = "ecc"
    PCIE = "pcie"
    NVLINK = "nvlink"
    XID = "xid"
    HOST_CPU = "host_cpu"
    GC = "gc"
    INPUT_LOADER = "input_loader"
    INPUT_STORAGE = "input_storage"
    SEQUENCE = "sequence"
    STAGE = "stage"
    EXPERT = "expert"
    NETWORK = "network"
    LINK = "link"
    CHECKPOINT = "checkpoint"
    LAUNCH_BOUND = "launch_bound"


@dataclass(frozen=True)
class CauseText:
    """A cause in words: its name, what to do, and what would settle it for good."""

    title: str
    action: str
    settle: str


CAUSE_TEXTS: dict[Cause, CauseText] = {
    Cause.THERMAL: CauseText(
        "the device is slowed down by heat",
        "check fans, coolant and airflow of that node; move the rank meanwhile",
        "the same device after its temperature has come down",
    ),
    Cause.POWER_CAP: CauseText(
        "the device is held by a power cap",
        "compare its power limit with its peers' (nvidia-smi -q -d POWER) and raise it; if they "
        "are equal, look at the power supply of that node",
        "the same device at its peers' power limit",
    ),
    Cause.CLOCKS: CauseText(
        "the device runs at a lower clock than its peers",
        "reset its application clocks (nvidia-smi -rgc, -rac) and look at who set them",
        "the same device at its peers' clock",
    ),
    Cause.ECC: CauseText(
        "the device corrects memory errors",
        "drain the node, reset the device so that rows are remapped, and replace it if errors "
        "come back",
        "a memory test of the drained device",
    ),
    Cause.PCIE: CauseText(
        "the PCIe link of the device is degraded",
        "reseat or replace the card or its riser; the link trained at fewer lanes or a lower "
        "generation than it can do",
        "a host-to-device copy benchmark on that device",
    ),
    Cause.NVLINK: CauseText(
        "an NVLink of the device has errors",
        "drain the node and run the NVLink diagnostics; replace the board or the cable",
        "a peer-to-peer bandwidth test inside that node",
    ),
    Cause.XID: CauseText(
        "the driver reported a hardware error of the device",
        "act on the Xid as its vendor's table says; drain the node if the code is a hardware one",
        "the kernel log of that node around the first slow step",
    ),
    Cause.HOST_CPU: CauseText(
        "the host's processors are contended",
        "look for other processes on that host, its CPU limits and NUMA binding",
        "CPU use, run queue and steal time of that host",
    ),
    Cause.GC: CauseText(
        "garbage collector pauses",
        "disable automatic garbage collection and collect at the same step on every rank",
        "the same job with collection at planned steps",
    ),
    Cause.INPUT_LOADER: CauseText(
        "the data loader does not keep up",
        "look at the data loader there: workers, prefetch depth, storage latency",
        "data loader queue depth and storage latency of that host",
    ),
    Cause.INPUT_STORAGE: CauseText(
        "all ranks wait for data: storage latency, throughput or many small files",
        "look at the storage: latency, throughput and bytes per read; pack small files, prefetch "
        "deeper, or cache on the nodes",
        "read latency and mean read size of the storage: latency and small files look alike in "
        "the steps",
    ),
    Cause.SEQUENCE: CauseText(
        "sequence-length imbalance",
        "balance the batches by the sum of squared sequence lengths",
        "the same batches on another rank",
    ),
    Cause.STAGE: CauseText(
        "pipeline stages of unequal work",
        "move layers off the heavy pipeline stage; the devices on it are not at fault",
        "a per-operation trace: the step time with balanced stages can then be simulated",
    ),
    Cause.EXPERT: CauseText(
        "expert imbalance: these experts get more tokens than the others",
        "raise the load-balancing loss or the capacity limit, or place hot experts apart",
        "tokens routed to each expert",
    ),
    Cause.NETWORK: CauseText(
        "the network is slower for all ranks",
        "look at the fabric: congestion, a lost spine link, another job's traffic",
        "port counters of the fabric, and an all-reduce benchmark on these nodes",
    ),
    Cause.LINK: CauseText(
        "the network of one group of ranks is slow",
        "test the links and adapters of these ranks' hosts with a collective benchmark",
        "port counters of these hosts: errors, discards, link rate",
    ),
    Cause.CHECKPOINT: CauseText(
        "checkpoints block the step",
        "make checkpoints asynchronous, or spread their writing over the ranks",
        "checkpoint_save events with their bytes, and write throughput of the storage",
    ),
    Cause.LAUNCH_BOUND: CauseText(
        "the ranks are held up by their hosts: launch gaps",
        "fuse or capture the launches (CUDA graphs, torch.compile), move work off the critical "
        "thread",
        "a profiler trace of one rank: launch gaps and Python time",
    ),
}


@dataclass(frozen=True)
class CauseVerdict:
    """A cause, or why none is named; ``confidence`` is of 1 and follows the policy document."""

    cause: Cause | None
    text: str
    """The cause in words, or the abstention."""
    confidence: float
    evidence_for: tuple[str, ...] = ()
    evidence_against: tuple[str, ...] = ()
    settle: tuple[str, ...] = ()
    action: str = ""

    @property
    def is_named(self) -> bool:
        """Whether a cause is named."""
        return self.cause is not None


class Scope(StrEnum):
    """What a finding is about."""

    RANKS = "ranks"
    STAGE = "stage"
    MOVING = "moving"
    """Nobody for good: a different rank from step to step, or one in too few steps."""
    JOB = "job"
    """All ranks alike: no straggler."""


@dataclass(frozen=True)
class Finding:
    """Something that makes the job slow, with its cause."""

    scope: Scope
    place: str
    """``rank 5``, ``host node003 (8 ranks)``, ``all ranks``."""
    ranks: tuple[int, ...]
    first_step: int
    last_step: int
    detected_step: int
    """When it could be told from what was known by then."""
    is_open: bool
    """It goes on at the newest step."""
    excess_us: float
    """Mean time over the peers', or over the healthy steps, per slow step."""
    excess_ratio: float
    """The same as a share of the median step."""
    part: str | None
    """The part of the step that carries it: compute, input, transfer, ...; None if unknown."""
    lost_ratio: float | None
    """Share of the paid time of the window that would come back; None where not known."""
    cause: CauseVerdict
    also: tuple[CauseVerdict, ...] = ()
    """Further causes that hold at once, less certain or for a smaller share."""
    in_steps: tuple[int, int] | None = None
    """Steps that are slow and steps from first to last, where slow stretches come and go."""
    is_silent: bool = False
    """Its ranks have not reported since: whether it goes on is not known."""
    span_ratio: float | None = None
    """Share of the paid time of the window from its first step to its last."""
    together: Together | None = None
    """What only a joint repair returns."""


@dataclass(frozen=True)
class Together:
    """Ranks that are slow at once, so that the repair of one leaves the others to be waited for."""

    ranks: tuple[int, ...]
    lost_ratio: float
    """Share of the paid time of the window that comes back when all of them are repaired."""


@dataclass(frozen=True)
class Diagnosis:
    """All findings, costliest first; ``reason`` says why none could be looked for."""

    findings: tuple[Finding, ...] = ()
    reason: str | None = None
    notes: tuple[str, ...] = ()


def named(
    cause: Cause,
    confidence: float,
    evidence_for: tuple[str, ...],
    evidence_against: tuple[str, ...] = (),
    settle: tuple[str, ...] = (),
) -> CauseVerdict:
    """The verdict that ``cause`` holds."""
    text = CAUSE_TEXTS[cause]
    return CauseVerdict(
        cause,
        text.title,
        confidence,
        evidence_for,
        evidence_against,
        (*settle, text.settle),
        text.action,
    )


def decide(
    candidates: list[CauseVerdict],
    least_confidence: float,
    *,
    abstain_text: str,
    evidence: tuple[str, ...] = (),
    settle: tuple[str, ...],
    action: str,
) -> tuple[CauseVerdict, tuple[CauseVerdict, ...]]:
    """The most certain candidate and the others; an abstention where none is certain enough."""
    ranked = sorted(candidates, key=lambda c: -c.confidence)
    against = tuple(
        "; ".join(
            (
                f"{c.text}: {spoken_ratio(c.confidence)} sure, "
                f"{spoken_ratio(least_confidence)} would do",
                *c.evidence_against,
            )
        )
        for c in ranked
        if c.confidence < least_confidence
    )
    if ranked and ranked[0].confidence >= least_confidence:
        also = tuple(c for c in ranked[1:] if c.confidence >= least_confidence)
        # What was seen and does not suffice is told beside what does, and not dropped.
        beside = tuple(f"beside it, {text}" for text in against)
        first = replace(ranked[0], evidence_against=(*ranked[0].evidence_against, *beside))
        return first, also
    best = ranked[0].confidence if ranked else 0.0
    verdict = CauseVerdict(None, abstain_text, best, evidence, against, settle, action)
    return verdict, ()
