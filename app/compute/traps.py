"""How each number misleads when it becomes a target; shown beside the number.

A metric is named by the id under which every surface shows it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trap:
    """One way in which a number misleads."""

    id: str
    text: str
    """For a reader of the number: what it hides, and what to look at instead."""
    metrics: tuple[str, ...]
    source: str = ""


_TRAPS = (
    Trap(
        "util-is-residency",
        "Utilisation as the driver reports it is the share of time in which some kernel was "
        "resident: one spinning multiprocessor, or waiting inside a collective, reads as 100 %. "
        "Look at tensor-pipe activity, power and MFU.",
        ("util_ratio", "gpu_utilization_ratio"),
        "Bekman, Machine Learning Engineering",
    ),
    Trap(
        "activity-falls-everywhere",
        "When one rank is slow, the activity of all devices falls together, so low activity "
        "neither measures efficiency nor finds the culprit.",
        ("util_ratio", "sm_active_ratio", "tensor_active_ratio"),
        "Wu et al. 2024, FALCON",
    ),
    Trap(
        "mfu-peak",
        "MFU moves with its peak: one with sparsity halves it, that of one die where a package is "
        "counted doubles it, FP8 products held against a BF16 peak double it. Compare only at the "
        "same device, precision and dense peak.",
        ("mfu_ratio", "hfu_ratio", "effective_mfu_ratio"),
    ),
    Trap(
        "mfu-convention",
        "Full or causal attention changes MFU by 40 % at 131,072 tokens for a 405B model, and the "
        "total parameters of a mixture of experts inflate it several times. Compare only at the "
        "same convention.",
        ("mfu_ratio", "hfu_ratio", "effective_mfu_ratio"),
        "Chowdhery et al. 2022; Megatron-LM",
    ),
    Trap(
        "hfu-as-mfu",
        "HFU counts recomputation as work: recomputing more raises it and slows the job.",
        ("hfu_ratio",),
        "Chowdhery et al. 2022",
    ),
    Trap(
        "mfu-selection",
        "Padding counted as tokens, or slow and first steps left out, raise MFU without any gain.",
        ("mfu_ratio", "hfu_ratio", "tokens_per_s"),
    ),
    Trap(
        "goodput-hides-risk",
        "Goodput rises when fewer checkpoints are written, when rolled-back steps are counted, or "
        "when the clock starts at the first step. Read it together with the work that one failure "
        "would lose.",
        ("goodput_ratio", "ettr_ratio"),
    ),
    Trap(
        "tax-reference",
        "Held against the fastest rank or the 10th percentile, normal spread looks like a "
        "straggler; the mean is the reference that adds up to the measured waiting.",
        ("straggler_tax_ratio", "slowdown_ratio"),
    ),
    Trap(
        "tax-is-relative",
        "Slower kernels on every rank lower the tax without saving a second. Read the seconds, "
        "not only the share.",
        ("straggler_tax_ratio", "persistent_share_ratio"),
    ),
    Trap(
        "slowdown-is-not-waste",
        "A slowdown of 34.59 % is a waste of 25.7 %: waste = s / (1 + s). Neither may be called "
        "the other.",
        ("straggler_tax_ratio", "slowdown_ratio", "waste_ratio"),
        "Wu et al. 2024, FALCON",
    ),
    Trap(
        "weighting",
        "A share of jobs is not a share of GPU-hours: of the same fleet 42.5 % of jobs were "
        "slowed by 10 % or more, and 10.4 % of GPU-hours were wasted.",
        ("straggler_tax_ratio", "slowdown_ratio", "gpu_hours"),
        "Lin et al., OSDI'25",
    ),
    Trap(
        "tokens-are-not-learning",
        "More tokens per second from a larger batch need not teach more. Read loss per dollar.",
        ("tokens_per_s", "usd_per_billion_tokens"),
    ),
    Trap(
        "velocity-phase",
        "Loss per dollar falls along every run and jumps when the learning rate decays: compare "
        "only at the same phase of the schedule, and in bits per byte across tokenizers.",
        ("loss_per_usd", "usd_to_target", "compute_equivalent_gain"),
    ),
    Trap(
        "busbw-in-switch",
        "With reduction in the switch, bus bandwidth is not wire speed and may exceed it.",
        ("busbw_gb_per_s",),
        "NVIDIA/nccl-tests, PERFORMANCE.md",
    ),
    Trap(
        "busbw-mean-of-sizes",
        "The mean over message sizes is not a bandwidth: small messages measure latency. Read "
        "the largest size.",
        ("busbw_gb_per_s", "algbw_gb_per_s"),
    ),
    Trap(
        "unpaid-reservation",
        "Cost per step looks low when reserved but unused devices are left out of the bill.",
        ("spend_usd", "usd_per_billion_tokens", "recoverable_usd"),
    ),
)

TRAPS: dict[str, Trap] = {trap.id: trap for trap in _TRAPS}
"""All traps by id."""


def traps_of(metric: str) -> tuple[Trap, ...]:
    """The traps of a metric, in their order; none if it has none."""
    return tuple(trap for trap in _TRAPS if metric in trap.metrics)
