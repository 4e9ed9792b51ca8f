"""The whole bill of a job, from its allocation to its end: what every paid GPU-second went into."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from steptax.app.compute.flops import Convention, Recompute, flops_per_token, hardware_factor
from steptax.app.compute.measure import Measure
from steptax.app.compute.model_shape import ModelShape
from steptax.app.compute.peaks import peak
from steptax.app.compute.step_flops import StepFlops, step_flops
from steptax.app.compute.steps import StepMatrix, without_inconsistent
from steptax.app.compute.waterfall import job_ledger
from steptax.app.compute.waterfall_rows import Waterfall
from steptax.app.errors import IntegrityError, NotFoundError, UserError
from steptax.app.views.load import LoadedJob
from steptax.app.views.models import Bill, BillLine
from steptax.app.views.workspace import Workspace

#: Metrics that rest on the whole bill.
BILL_METRICS = (
    "scheduling_ratio",
    "ettr_ratio",
    "goodput_ratio",
    "mfu_ratio",
    "effective_mfu_ratio",
)
_SHAPE = ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq_len", "experts", "topk")


def job_bill(ws: Workspace, loaded: LoadedJob, price: Decimal | None) -> Bill:
    """The bill of ``loaded``'s job over its whole life; where there is none, the reason."""
    job_id = loaded.job["job_id"]
    steps = ws.engine.run("step_summary", job_id=job_id).to_pylist()
    if not steps or steps[0]["start_us"] is None:
        return _without(
            "the steps carry no start times, so they cannot be placed in the job's life"
        )
    matrix, _ = without_inconsistent(loaded.matrix)
    flops, convention = _flops(loaded.job, matrix)
    try:
        found = job_ledger(
            loaded.job,
            ws.engine.run("job_events", job_id=job_id).to_pylist(),
            steps,
            matrices=(matrix,),
            flops=flops,
            usd_per_gpu_hour=price,
            until_us=loaded.newest_us,
        )
    except (NotFoundError, UserError, IntegrityError) as error:
        return _without(str(error))
    return Bill(
        lines=_lines(found),
        metrics={
            name: measure
            for name, measure in found.goodput.measures().items()
            if name in BILL_METRICS
        },
        note=_note(found, convention),
        at_risk=found.at_risk,
        findings=tuple(finding.text for finding in found.findings),
    )


def _without(reason: str) -> Bill:
    metrics = {name: Measure.missing("ratio", reason) for name in BILL_METRICS}
    return Bill((), metrics, reason, None, ())


def _lines(found: Waterfall) -> tuple[BillLine, ...]:
    return tuple(
        BillLine(
            row.bucket,
            row.title,
            row.gpu_seconds,
            row.share_ratio,
            row.usd,
            row.is_loss,
            row.note or None,
            row.number,
        )
        for row in found.rows
    )


def _note(found: Waterfall, convention: str) -> str:
    text = f"Every {found.denominator} GPU-second of the job, once; the buckets add up exactly."
    if found.no_useful:
        return f"{text} The useful part is not known: {found.no_useful}."
    return f"{text} FLOPs by convention {convention}."


def _flops(job: Mapping[str, Any], matrix: StepMatrix) -> tuple[StepFlops, str]:
    """Useful time per step from the job's model shape, tokens and device; or why it is unknown."""
    sizes: dict[str, Any] = {name: job.get(name) for name in _SHAPE}
    shape = ModelShape(
        **sizes,
        causal=job.get("causal") is not False,
        params_total=job.get("params_total"),
        params_active=job.get("params_active"),
    )
    tokens = _tokens_per_step(job, matrix)
    if tokens is None:
        return StepFlops(None, reason="tokens per step are not recorded"), ""
    convention = Convention.MEGATRON
    per_token = flops_per_token(shape, convention)
    if per_token.value is None:
        convention = Convention.SIX_N
        per_token = flops_per_token(shape, convention)
    if per_token.value is None:
        return StepFlops(None, reason=per_token.reason or "the model's shape is not known"), ""
    dtype = job.get("dtype") or "unknown"
    recompute = job.get("recompute")
    factor = hardware_factor(
        shape, convention, None if recompute is None else Recompute.read(recompute)
    )
    found = step_flops(
        {dtype: per_token.value * tokens},
        {dtype: peak(job.get("gpu_model"), job.get("dtype"))},
        hfu_factor=factor,
        convention=convention,
    )
    return found, convention


def _tokens_per_step(job: Mapping[str, Any], matrix: StepMatrix) -> float | None:
    """Tokens of the whole job in a step: measured over the ranks, else as the job states them."""
    if matrix.tokens is not None and not np.isnan(matrix.tokens).any():
        return float(matrix.tokens.sum(axis=1).mean()) * float(matrix.weight)
    stated = job.get("tokens_per_step")
    return None if stated is None else float(stated)
