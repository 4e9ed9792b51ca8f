"""What a job's record says of its model, its devices and its learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from steptax.app.compute.calculators.registry import CALCULATORS
from steptax.app.compute.calculators.sequence_balance import fit_sequence_cost
from steptax.app.compute.measure import Measure
from steptax.app.compute.mfu.peaks import peak
from steptax.app.errors import UserError
from steptax.app.views.whatif.facts import Facts
from steptax.app.views.whatif.models import Known, Numbers, Word


def mfu_inputs(facts: Facts, step: Measure) -> dict[str, Known]:
    """Throughput, device and shape of the model."""
    job = facts.loaded.job
    tokens = job.get("tokens_per_step")
    rate = facts.none("1/s", "tokens per step of the whole job are not recorded")
    if tokens:
        rate = step.map(lambda ms: tokens / (ms / 1000.0), "1/s")

    def number(value: Any, what: str) -> Measure:
        return facts.none("", f"the job does not say {what}") if not value else facts.count(value)

    def word(value: Any, what: str) -> Word:
        return Word(value) if value else Word(None, f"the job does not say {what}")

    causal = job.get("causal")
    # Of a mixture the total says nothing of what a token meets.
    params = job.get("params_active") or (None if job.get("experts") else job.get("params_total"))
    return {
        "tokens_per_s": rate,
        "devices": facts.ranks,
        "device": word(job.get("gpu_model"), "which device it runs on"),
        "dtype": word(job.get("dtype"), "its precision"),
        "params": number(params, "its parameters"),
        "layers": number(job.get("layers"), "its layers"),
        "hidden": number(job.get("hidden"), "its hidden size"),
        "heads": number(job.get("heads"), "its attention heads"),
        "kv_heads": number(job.get("kv_heads"), "its key/value heads"),
        "ffn": number(job.get("ffn"), "its feed-forward size"),
        "vocab": number(job.get("vocab"), "its vocabulary"),
        "seq_len_tokens": replace(number(job.get("seq_len"), "its length"), unit="tokens"),
        "experts": number(job.get("experts"), "its experts"),
        "topk": number(job.get("experts") and job.get("topk"), "how many experts a token meets"),
        "attention": word(
            None if causal is None else ("causal" if causal else "full"),
            "whether its attention is causal",
        ),
        "recompute": word(job.get("recompute"), "what it recomputes"),
    }


def device_a(
    facts: Facts, mfu: Mapping[str, Known], bill: Mapping[str, Measure]
) -> dict[str, Known]:
    """The job's own device as A: its peak, and how well it is used.

    ``bill`` holds the metrics of the job's whole bill; its goodput is that of the whole job.
    """
    job = facts.loaded.job
    found = peak(job.get("gpu_model"), job.get("dtype"))
    top = (
        facts.none("TFLOP/s", found.reason or "no peak is known")
        if found.tflops is None
        else facts.count(found.tflops, "TFLOP/s")
    )
    given = {
        name: known.text if isinstance(known, Word) else known
        for name, known in mfu.items()
        if not isinstance(known, Numbers)
    }
    try:
        used = CALCULATORS["mfu"].run(given).main
    except UserError as problem:
        lacking = (mfu[name].reason for name in ("tokens_per_s", "device", "params"))
        used = facts.none("ratio", next(filter(None, lacking), problem.message))
    if used.value is None and bill["mfu_ratio"].value is not None:
        used = bill["mfu_ratio"]
    return {
        "a_peak_tflops": top,
        "a_mfu_ratio": used,
        "a_goodput_ratio": bill["goodput_ratio"],
        "a_gpus": facts.ranks,
    }


def equal_parts(facts: Facts) -> Measure:
    """Length at which attention costs as much as the rest, fitted to the job's own times."""
    tokens, squares = facts.part.tokens, facts.part.seq_sq_sum
    compute = facts.part.phases.get("compute")
    if tokens is None or squares is None or compute is None:
        return facts.none("tokens", "tokens, seq_sq_sum and compute_us were not all recorded")
    there = np.isfinite(tokens) & np.isfinite(squares) & np.isfinite(compute)
    try:
        cost = fit_sequence_cost(tokens[there], squares[there], compute[there])
    except UserError as problem:
        return facts.none("tokens", problem.message)
    length = cost.equal_parts_tokens
    if length is None or length <= 0:
        return facts.none("tokens", "compute does not grow with the square of the length here")
    return Measure(length, "tokens", level=facts.level, inputs=("tokens", "seq_sq_sum"))
