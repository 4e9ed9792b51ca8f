"""Names of inputs and results in words, from the names and texts that calculators declare."""

from __future__ import annotations

import re
from collections.abc import Sequence

from steptax.app.format import format_value
from steptax.app.views.whatif.models import InputField, Origin, Value

_BREAK = re.compile(r"[,:;(]")
_UNITS = {"ms", "us", "s", "h", "d", "ratio", "tokens"}
_WORDS = {
    "a": "A",
    "algbw": "algorithm bandwidth",
    "b": "B",
    "busbw": "bus bandwidth",
    "comm": "communication",
    "daly": "Daly",
    "eflop": "EFLOP",
    "gpu": "GPU",
    "gumbel": "Gumbel",
    "besiroglu": "by Besiroglu",
    "blom": "Blom",
    "hfu": "HFU",
    "hoffmann": "by Hoffmann",
    "mfu": "MFU",
    "mtbf": "time between failures",
    "nccl": "NCCL",
    "sd": "standard deviation",
    "speedup": "speed-up",
    "stragglar": "StragglAR",
    "tflops": "TFLOP/s",
    "usd": "USD",
    "young": "Young",
}
#: Where the words of a name do not read well.
_TITLES = {
    "a_days": "days on A",
    "a_energy_usd_per_eflop": "energy for it on A",
    "a_usd_per_eflop": "a useful EFLOP on A",
    "actual_h": "actual run",
    "algbw_gb_per_s": "algorithm bandwidth",
    "all_reduce_speedup": "all-reduce speed-up",
    "any_bad_ratio": "chance of a bad rank",
    "any_pause_ratio": "steps with a pause",
    "any_slow_ratio": "steps with a slow rank",
    "b_days": "days on B",
    "bad_rank_upper_ratio": "bad ranks, at most",
    "bandwidth_ms": "without latency",
    "baseline_needs_eflop": "baseline needs",
    "best_tokens_per_param_besiroglu": "best tokens a parameter by Besiroglu",
    "best_tokens_per_param_hoffmann": "best tokens a parameter by Hoffmann",
    "b_energy_usd_per_eflop": "energy for it on B",
    "b_usd_per_eflop": "a useful EFLOP on B",
    "b_break_even_usd_per_gpu_hour": "break-even price of B",
    "break_even_utilisation_ratio": "cheaper from this use on",
    "break_even_cv_ratio": "pays above a spread of",
    "busbw_gb_per_s": "bus bandwidth",
    "ceiling": "most that is possible",
    "committed_usd_per_used_gpu_hour": "committed, a used hour",
    "compute_equivalent_gain": "compute-equivalent gain",
    "context_tokens": "context of the average token",
    "dropped_ratio": "gradients dropped",
    "expected_max_ms": "slowest rank, mean",
    "expected_slow": "slow ranks, mean number",
    "extra_gpu_hours": "extra GPU-hours",
    "extra_h": "extra time",
    "extra_usd": "cost of the extra hours",
    "duration_ms": "time",
    "failures_per_day": "failures per day",
    "fit_error": "error of the fit",
    "fit_exponent": "exponent of the fit",
    "fit_floor": "floor of the baseline",
    "flops_per_token": "FLOPs per token",
    "flops_per_token_6n": "FLOPs per token by 6N",
    "flops_per_token_megatron": "FLOPs per token by Megatron",
    "flops_per_token_palm": "FLOPs per token by PaLM",
    "gain_per_usd": "gain per USD",
    "gpu_s_before": "GPU time before",
    "gpu_s_replaced": "GPU time, replaced",
    "gpu_s_shrunk": "GPU time, shrunk",
    "hfu_factor_ratio": "executed / model FLOPs",
    "lost_usd": "cost of what was lost",
    "loss_per_million_usd": "loss per million USD",
    "mfu_6n_ratio": "MFU by 6N",
    "mfu_megatron_ratio": "MFU by Megatron",
    "mfu_of_achievable_ratio": "model FLOPs, share of achievable",
    "mfu_palm_ratio": "MFU by PaLM",
    "mtbf_gpu_h": "time between failures of one GPU",
    "mtbf_h": "time between interruptions",
    "no_failure_ratio": "chance of no failure",
    "nvls_link_gb_per_s": "link with reduction in the switch",
    "of_achievable_ratio": "share of achievable",
    "of_model_ratio": "model / measured time",
    "on_demand_usd_per_gpu_hour_mean": "by the hour, mean of the term",
    "owned_usd_per_gpu_hour": "own, a used hour",
    "energy_usd_per_gpu_hour": "of which energy",
    "usd_per_gpu_year": "a year of an own device",
    "saved_usd_per_gpu_hour": "saved an hour",
    "saved_usd_per_used_gpu_hour": "saved a used hour",
    "params_active": "parameters that a token meets",
    "params_total": "parameters of the model",
    "payback_d": "pays back after",
    "recovered_usd_per_day": "saved per day",
    "slow_ratio": "ranks that are slow",
    "standard_max": "slowest rank above the mean",
    "step_replaced_ms": "step, slowest replaced",
    "step_shrunk_ms": "step, job shrunk",
    "tokens_per_param": "tokens a parameter",
    "usd_to_target": "cost to the target",
    "useful_at_best_ratio": "useful at the best interval",
    "useful_at_interval_ratio": "useful at your interval",
    "wire_ratio": "share of the link",
}
#: How a unit is said beside the label of an input.
_UNIT_WORDS = {"ratio": "0 to 1", "x": "×", "us": "µs", "1/s": "per s", "1/h": "per h"}


def noun_of(text: str) -> str:
    """What a help text says first: the thing without its remarks."""
    return _BREAK.split(text, maxsplit=1)[0].strip()


def label_of(text: str, unit: str) -> str:
    """The label of an input: what its help says first, and its unit."""
    first = noun_of(text)
    said = _UNIT_WORDS.get(unit, unit)
    label = f"{first[:1].upper()}{first[1:]}"
    return f"{label}, {said}" if said else label


def title_of(name: str) -> str:
    """A result's name in words: ``step_speedup`` is ``step speed-up``."""
    if name in _TITLES:
        return _TITLES[name]
    words = name.split("_")
    if len(words) > 1 and words[-1] in _UNITS:
        words = words[:-1]
    return " ".join(_WORDS.get(word, word) for word in words)


def plain_number(value: float) -> str:
    """The digits that give exactly ``value`` again, without ``.0``."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def plain_value(value: Value) -> str:
    """A value as a command or a link carries it."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return ",".join(plain_number(v) for v in value)
    return plain_number(value)


def shown_value(value: Value | None, unit: str) -> str:
    """A value as an empty field shows it: short, without its unit; a list by its first values."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        head = ", ".join(f"{v:,.0f}" if 1e4 <= abs(v) < 1e15 else f"{v:,.4g}" for v in value[:3])
        return head if len(value) <= 3 else f"{len(value):,} values: {head}, …"
    if unit in {"", "steps", "tokens", "bytes"} and value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:,.5g}"


def band_text(value: float | None, low: float | None, high: float | None, unit: str) -> str | None:
    """Both ends in words; ``at least`` or ``at most`` where one is known; None for one value."""
    if low is not None and high is not None:
        first, last = format_value(low, unit), format_value(high, unit)
        return None if first == last else f"{first} to {last}"
    if value is None and low is not None:
        return f"at least {format_value(low, unit)}"
    if value is None and high is not None:
        return f"at most {format_value(high, unit)}"
    return None


def invented_text(fields: Sequence[InputField]) -> str:
    """How a sentence begins that rests on a number that nobody measured or typed: which one it is.

    Where nothing is of a job, all of it is an example; empty where nothing is.
    """
    invented = [field for field in fields if field.origin is Origin.EXAMPLE]
    if not invented:
        return ""
    if not any(field.origin is Origin.MEASURED for field in fields):
        return "Example: "
    labels = " and ".join(
        f"“{field.label.rpartition(', ')[0] or field.label}”" for field in invented
    )
    return f"This job, with an example for {labels}: "
