"""What a job's log printed, each figure beside the one that is computed here; never mixed."""

from __future__ import annotations

from collections.abc import Mapping

from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.mfu.peaks import peak
from steptax.app.views.bill.view import tokens_per_step
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.pricing.given import NO_WORLD
from steptax.app.views.reported.models import Beside, Reports

NO_TOKENS = "the tokens of a step are not on record"
#: What the log prints, in the order in which it is shown, and how it is called.
TITLES: Mapping[str, str] = {
    "step_time": "step time",
    "tokens_per_s_per_gpu": "tokens per second and GPU",
    "tokens_per_s": "tokens per second",
    "samples_per_s": "samples per second",
    "tflops_per_gpu": "FLOP/s per GPU",
    "mfu": "MFU",
    "loss": "loss",
    "grad_norm": "gradient norm",
}


def our_figures(loaded: LoadedJob, metrics: Mapping[str, Measure]) -> dict[str, Measure]:
    """What is computed of ``loaded`` by the name of what a log prints of it.

    Tokens per second are the tokens of a step over the mean step; FLOP/s per GPU are MFU times the
    dense peak of the job's device and data type.
    """
    job, step = loaded.job, metrics["step_ms"]
    tokens = tokens_per_step(job, loaded.matrix)
    rate = (
        Measure.missing("tokens/s", NO_TOKENS, level=step.level)
        if tokens is None
        else step.map(lambda ms: tokens / (ms / 1000.0), "tokens/s", "tokens_per_step")
    )
    each = (
        Measure.missing("tokens/s/GPU", NO_WORLD, level=step.level)
        if loaded.world_is_unknown
        else rate.map(lambda all_: all_ / loaded.matrix.world_size, "tokens/s/GPU", "world_size")
    )
    mfu, top = metrics["mfu_ratio"], peak(job.get("gpu_model"), job.get("dtype")).tflops
    flops = (
        Measure.missing("TFLOP/s", mfu.reason or "no peak is known", level=Level.LOG)
        if mfu.value is None or top is None
        else mfu.map(lambda share: share * top, "TFLOP/s", "peak")
    )
    return {
        "step_time": step,
        "tokens_per_s": rate,
        "tokens_per_s_per_gpu": each,
        "tflops_per_gpu": flops,
        "mfu": mfu,
    }


def beside(reports: Reports, ours: Mapping[str, Measure]) -> tuple[Beside, ...]:
    """Throughput, MFU, loss and the like that the log printed of the whole job, with ``ours``.

    Without steps ``ours`` is empty.
    """
    of_job = {value.name: value for value in reports.printed if value.subject == "job"}
    return tuple(
        Beside(title, of_job[name], ours.get(name), _basis(name, ours.get(name)))
        for name, title in TITLES.items()
        if name in of_job
    )


def _basis(name: str, ours: Measure | None) -> str:
    if ours is not None:
        return f"unknown: {ours.reason}" if ours.value is None else _BASIS[name]
    return "not computed: no steps are stored" if name in _BASIS else "not computed here"


_OF_STEPS = "the mean step of the window, slow first steps included"
#: What each of ours rests on.
_BASIS: Mapping[str, str] = {
    "step_time": _OF_STEPS,
    "tokens_per_s": _OF_STEPS,
    "tokens_per_s_per_gpu": _OF_STEPS,
    "tflops_per_gpu": "MFU times the dense peak of its device",
    "mfu": "retained steps of the whole job, dense peak",
}
