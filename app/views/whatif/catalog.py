"""What the What-if page knows of each calculator beyond its own declaration.

A new calculator works without an entry here: it then has no example, no curve and no traps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from steptax.app.compute.calculators.registry import CALCULATORS
from steptax.app.views.whatif.models import Value

#: In the order in which a person is likely to want them; the others follow as registered.
_FIRST = (
    "kernel-speedup",
    "remove-worst",
    "backup-workers",
    "checkpoint-interval",
    "failures",
    "expected-max",
    "local-sgd",
    "gc-sync",
    "sequence-balance",
    "hot-spares",
    "break-even",
    "build-or-rent",
    "commitment",
)

#: Inputs that take the price per GPU-hour of the page.
PRICE_INPUTS = ("usd_per_gpu_hour", "a_usd_per_gpu_hour")


@dataclass(frozen=True)
class Sweep:
    """A curve of some measures over one input.

    From ``low`` to ``high`` times the input; where it is not given, times the measure ``around``.
    """

    title: str
    parameter: str
    measures: tuple[str, ...]
    low: float
    high: float
    y_title: str
    around: str | None = None


@dataclass(frozen=True)
class Entry:
    """``asked``: start values of the question itself, which no job can answer. ``example``: start
    values of everything else, used until a job or a person gives better ones. ``instead``: groups
    of inputs of which one replaces the others. ``traps``: those of the numbers that it gives.
    """

    asked: Mapping[str, Value] = field(default_factory=dict)
    example: Mapping[str, Value] = field(default_factory=dict)
    instead: tuple[tuple[str, ...], ...] = ()
    traps: tuple[str, ...] = ()
    sweep: Sweep | None = None


_LOSSES = (4.0, 3.7, 3.45, 3.25, 3.1, 2.98, 2.88, 2.8, 2.73, 2.67, 2.62, 2.58, 2.55, 2.52, 2.5)

_ENTRIES: dict[str, Entry] = {
    "kernel-speedup": Entry(
        asked={"speedup": 232.0},
        example={"compute_ms": 100.0, "comm_ms": 30.0, "wait_ms": 15.0},
        traps=("tax-is-relative", "slowdown-is-not-waste"),
    ),
    "remove-worst": Entry(
        asked={"worst": 1.0},
        example={"times_ms": (100.0, 101.0, 99.0, 102.0, 98.0, 100.0, 101.0, 140.0)},
        traps=("tax-reference", "activity-falls-everywhere"),
    ),
    "backup-workers": Entry(
        asked={"backups": 4.0},
        example={"workers": 96.0, "cv_ratio": 0.1},
        traps=("tokens-are-not-learning",),
        sweep=Sweep(
            "Gain by number of backups",
            "backups",
            ("net_gain", "step_speedup", "cost_factor"),
            0.25,
            8,
            "factor",
        ),
    ),
    "checkpoint-interval": Entry(
        example={"checkpoint_s": 60.0, "mtbf_s": 10_800.0, "restart_s": 60.0},
        traps=("goodput-hides-risk",),
        sweep=Sweep(
            "Useful time by interval",
            "interval_s",
            ("useful_at_interval_ratio",),
            0.1,
            10,
            "useful share of the time",
            around="best_interval_s",
        ),
    ),
    "failures": Entry(
        example={
            "gpus": 16_384.0,
            "observed_failures": 419.0,
            "observed_h": 1_296.0,
            "observed_gpus": 16_384.0,
        },
        instead=(
            ("observed_failures", "observed_h", "observed_gpus"),
            ("counts", "observed_h", "observed_gpus"),
            ("mtbf_gpu_h",),
        ),
        traps=("goodput-hides-risk",),
        sweep=Sweep(
            "Time between interruptions by size of the job",
            "gpus",
            ("mtbf_h",),
            1 / 64,
            64,
            "time between interruptions",
        ),
    ),
    "expected-max": Entry(
        example={"ranks": 1_024.0, "cv_ratio": 0.05, "mean_ms": 100.0},
        traps=("tax-reference", "slowdown-is-not-waste"),
        sweep=Sweep(
            "Slowest rank by number of ranks",
            "ranks",
            ("slowdown",),
            1 / 128,
            128,
            "slowest rank / mean rank",
        ),
    ),
    "local-sgd": Entry(
        asked={"every_steps": 4.0},
        example={"ranks": 1_024.0, "cv_ratio": 0.05},
        traps=("tokens-are-not-learning",),
        sweep=Sweep(
            "Speed-up by steps between synchronisations",
            "every_steps",
            ("step_speedup",),
            1 / 4,
            64,
            "step speed-up",
        ),
    ),
    "gc-sync": Entry(
        example={"pause_ms": 200.0, "every_steps": 500.0, "ranks": 128.0, "step_ms": 1_000.0},
        traps=("tax-is-relative",),
        sweep=Sweep(
            "Cost by steps between pauses",
            "every_steps",
            ("unsynchronised_ms", "synchronised_ms"),
            0.02,
            10,
            "cost per step",
        ),
    ),
    "sequence-balance": Entry(
        example={
            "lengths_tokens": (30_000.0, 2_000.0, 12_000.0, 4_000.0, 8_000.0, 2_000.0, 4_000.0),
            "ranks": 2.0,
            "equal_parts_tokens": 57_000.0,
        },
        instead=(("equal_parts_tokens",), ("parameters", "layers", "query_width")),
        traps=("mfu-selection", "mfu-convention"),
    ),
    "hot-spares": Entry(
        example={"failures_per_h": 0.3233, "repair_h": 24.0, "nodes": 2_048.0},
        traps=("unpaid-reservation", "goodput-hides-risk"),
        sweep=Sweep(
            "Spares by time of repair", "repair_h", ("spares", "mean_in_repair"), 0.1, 4, "nodes"
        ),
    ),
    "break-even": Entry(
        example={
            "a_usd_per_gpu_hour": 2.0,
            "a_peak_tflops": 989.5,
            "a_mfu_ratio": 0.4,
            "a_goodput_ratio": 0.9,
            "b_peak_tflops": 2_250.0,
            "b_mfu_ratio": 0.35,
            "b_goodput_ratio": 0.9,
        },
        traps=("mfu-peak", "mfu-convention", "goodput-hides-risk", "unpaid-reservation"),
        sweep=Sweep(
            "Break-even price by utilisation of B",
            "b_mfu_ratio",
            ("b_break_even_usd_per_gpu_hour",),
            0.3,
            2,
            "break-even price of B",
        ),
    ),
    "build-or-rent": Entry(
        example={
            "purchase_usd_per_gpu": 37_500.0,
            "rent_usd_per_gpu_hour": 2.0,
            "years": 5.0,
            "utilisation_ratio": 0.8,
            "other_usd_per_gpu_year": 2_500.0,
            "interest_ratio": 0.08,
            "residual_ratio": 0.1,
            "power_w": 1_275.0,
            "pue": 1.2,
            "usd_per_kwh": 0.08,
        },
        traps=("unpaid-reservation",),
        sweep=Sweep(
            "Price of an own hour by use",
            "utilisation_ratio",
            ("owned_usd_per_gpu_hour", "saved_usd_per_gpu_hour"),
            0.25,
            1.25,
            "USD/GPU-hour",
        ),
    ),
    "commitment": Entry(
        example={
            "committed_usd_per_gpu_hour": 1.4,
            "on_demand_usd_per_gpu_hour": 2.0,
            "years": 3.0,
            "utilisation_ratio": 0.85,
            "yearly_fall_ratio": 0.15,
        },
        traps=("unpaid-reservation",),
        sweep=Sweep(
            "Break-even use by the fall of prices",
            "yearly_fall_ratio",
            ("break_even_utilisation_ratio",),
            0.2,
            2,
            "break-even use",
        ),
    ),
    "mfu": Entry(
        # Llama 3 405B on 16,384 H100: 16 Mi tokens in 6.46 s.
        example={
            "tokens_per_s": 2_597_000.0,
            "devices": 16_384.0,
            "convention": "megatron",
            "device": "H100 SXM",
            "dtype": "bf16",
            "layers": 126.0,
            "hidden": 16_384.0,
            "heads": 128.0,
            "kv_heads": 8.0,
            "ffn": 53_248.0,
            "vocab": 128_256.0,
            "seq_len_tokens": 8_192.0,
            "mlp": "swiglu",
            "recompute": "none",
        },
        instead=(("device",), ("peak_tflops", "peak_basis")),
        traps=("mfu-peak", "mfu-convention", "mfu-selection", "hfu-as-mfu"),
    ),
    "train-time": Entry(
        example={"devices": 1_024.0, "tflops": 140.0, "params": 175e9, "peak_tflops": 312.0},
        asked={"tokens": 300e9},
        instead=(("params",), ("layers", "hidden", "vocab", "seq_len_tokens")),
        traps=("hfu-as-mfu", "mfu-peak"),
        sweep=Sweep("Run by devices", "devices", ("run_d", "ceiling_d"), 1 / 16, 16, "days"),
    ),
    "any-slow": Entry(
        example={"ranks": 100.0, "slow_ratio": 0.01},
        instead=(("slow_ratio",), ("observed_ranks", "observed_slow")),
        traps=("weighting",),
        sweep=Sweep(
            "Slow steps by number of ranks",
            "ranks",
            ("any_slow_ratio",),
            1 / 64,
            64,
            "steps with a slow rank",
        ),
    ),
    "waste": Entry(
        example={"delay_ratio": 0.3459},
        instead=(
            ("slowdown",),
            ("delay_ratio",),
            ("waste_ratio",),
            ("actual_h",),
            ("healthy_per_min", "slow_per_min"),
        ),
        traps=("slowdown-is-not-waste", "weighting"),
    ),
    "stragglar": Entry(
        example={
            "ranks": 8.0,
            "size_bytes": 1_073_741_824.0,
            "link_gb_per_s": 450.0,
            "alpha_us": 3.0,
        },
        traps=("busbw-in-switch",),
        sweep=Sweep(
            "Speed-up by message size",
            "size_bytes",
            ("all_reduce_speedup",),
            1e-4,
            16,
            "all-reduce speed-up",
        ),
    ),
    "busbw": Entry(
        example={"collective": "all_reduce", "ranks": 8.0, "algbw_gb_per_s": 275.0},
        instead=(("duration_ms",), ("algbw_gb_per_s",), ("busbw_gb_per_s",)),
        traps=("busbw-in-switch", "busbw-mean-of-sizes"),
    ),
    "collective-time": Entry(
        example={
            "collective": "all_reduce",
            "ranks": 64.0,
            "size_bytes": 1_073_741_824.0,
            "link_gb_per_s": 450.0,
            "alpha_us": 3.0,
            "nodes": 8.0,
            "net_gb_per_s": 50.0,
            "net_alpha_us": 10.0,
        },
        traps=("busbw-in-switch", "busbw-mean-of-sizes"),
        sweep=Sweep(
            "Time by message size",
            "size_bytes",
            ("ring_ms", "double_tree_ms", "hierarchical_ms"),
            1e-5,
            16,
            "time",
        ),
    ),
    "compute-equivalent-gain": Entry(
        example={
            "baseline_eflop": (100.0, 1_000.0, 1e4, 1e5, 1e6),
            "baseline_loss": (3.0, 2.7, 2.5, 2.36, 2.27),
            "loss_now": 2.4,
            "used_eflop": 3e4,
        },
        traps=("velocity-phase", "tokens-are-not-learning"),
        sweep=Sweep(
            "Gain by loss reached",
            "loss_now",
            ("compute_equivalent_gain",),
            0.97,
            1.03,
            "gain in compute",
        ),
    ),
    "scaling-law": Entry(
        example={
            "params": 70e9,
            "tokens": 1.4e12,
            "peak_tflops": 989.5,
            "mfu_ratio": 0.4,
            "goodput_ratio": 0.9,
            "usd_per_gpu_hour": 2.0,
        },
        traps=("velocity-phase", "tokens-are-not-learning", "mfu-peak"),
        sweep=Sweep(
            "Loss by tokens",
            "tokens",
            ("loss_hoffmann", "loss_besiroglu"),
            1 / 64,
            64,
            "expected loss",
        ),
    ),
    "learning-velocity": Entry(
        example={"loss": _LOSSES, "usd": (2.0,), "window_usd": 20.0},
        traps=("velocity-phase", "tokens-are-not-learning"),
    ),
}


def entry(name: str) -> Entry:
    """What is known of the calculator ``name``; nothing for one without an entry."""
    return _ENTRIES.get(name, Entry())


def ordered() -> tuple[str, ...]:
    """Names of all calculators, the likeliest first."""
    return _FIRST + tuple(name for name in CALCULATORS if name not in _FIRST)
