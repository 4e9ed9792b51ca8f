"""How long a step and a run take at an achieved speed, by the closed forms of a plain GPT."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.money import PRICE, PRICE_HIGH, priced
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure
from steptax.app.compute.mfu.closed_forms import (
    SECONDS_PER_DAY,
    korthikanti_model_flops,
    narayanan_flops,
    narayanan_params,
    train_seconds,
)
from steptax.app.errors import UserError


@dataclass(frozen=True, kw_only=True)
class TrainTime(Result):
    """Parameters, step and run; ``ceiling_d`` is the run at the whole peak of the devices."""

    headline: str = "run_d"

    run_d: Measure
    ceiling_d: Measure
    gpu_hours: Measure
    run_usd: Measure
    params_total: Measure
    step_s: Measure
    hfu_ratio: Measure
    mfu_ratio: Measure


@calculator(
    name="train-time",
    title="Time of a step and a run",
    formula="run = 8 T P / (n X) with full recomputation, 6 T P / (n X) without; step = FLOPs / "
    "(n X), FLOPs = 96 B s l h^2 (1 + s/(6h) + V/(16 l h)); P = 12 l h^2 (1 + 13/(12h) + "
    "(V + s)/(12 l h))",
    source="Narayanan et al., SC'21, equations 2 and 3, section 5.1; MFU by Korthikanti et al. "
    "2022, appendix A",
    page="X is what a device achieves, recomputation included; take it from a measurement. The "
    "forms are those of a plain GPT with full recomputation. Nothing but steps is counted: divide "
    "by goodput for the time that is paid.",
    parameters=(
        Parameter("devices", "", "devices, n", Kind.INT, minimum=1),
        Parameter("tflops", "TFLOP/s", "what a device achieves, X", above=0),
        Parameter("params", "", "parameters, P, instead of the shape", above=0),
        Parameter("tokens", "", "tokens of the run, T", above=0),
        Parameter("recompute", "", "activations", Kind.CHOICE, choices=("full", "none")),
        Parameter("layers", "", "layers, l", Kind.INT, minimum=1),
        Parameter("hidden", "", "hidden size, h", Kind.INT, minimum=1),
        Parameter("vocab", "", "vocabulary, V", Kind.INT, minimum=1),
        Parameter("seq_len_tokens", "tokens", "sequence length, s", Kind.INT, minimum=1),
        Parameter("batch_sequences", "", "sequences of a step, B", Kind.INT, minimum=1),
        Parameter("peak_tflops", "TFLOP/s", "dense peak of a device", above=0),
        PRICE,
        PRICE_HIGH,
    ),
)
def train_time(
    *,
    devices: int,
    tflops: float,
    params: float | None = None,
    tokens: float | None = None,
    recompute: str = "full",
    layers: int | None = None,
    hidden: int | None = None,
    vocab: int | None = None,
    seq_len_tokens: int | None = None,
    batch_sequences: int | None = None,
    peak_tflops: float | None = None,
    usd_per_gpu_hour: float | None = None,
    usd_per_gpu_hour_high: float | None = None,
) -> TrainTime:
    """The run where tokens are given, the step where the shape and the batch are.

    Raises:
        UserError: a speed above the peak; both parameters and a shape, or neither; no tokens and
            no batch.
    """
    if peak_tflops is not None and tflops > peak_tflops:
        raise UserError(f"expected at most peak_tflops, {peak_tflops:g}", where="tflops")
    shape = (layers, hidden, vocab, seq_len_tokens)
    counted = _params(params, shape)
    step, used, useful = _step(
        devices, tflops, shape, batch_sequences, peak_tflops, recompute == "full"
    )
    run = Measure.missing("d", "the tokens of the run were not given")
    ceiling = Measure.missing("d", "tokens and peak were not both given")
    if tokens is not None:
        run = Measure(_days(counted, tokens, devices, tflops, recompute), "d")
        if peak_tflops is not None:
            ceiling = Measure(_days(counted, tokens, devices, peak_tflops, recompute), "d")
    elif step.value is None:
        raise UserError("expected the tokens of the run, or a batch of a shape", where="tokens")
    gpu_hours = run.map(lambda d: d * 24 * devices, "GPU-hours")
    said = []
    if run.value is not None:
        said.append(f"the run takes {run.value:,.1f} days")
    if step.value is not None:
        said.append(f"a step takes {step.value:.4g} s")
    return TrainTime(
        headline="step_s" if run.value is None else "run_d",
        run_d=run,
        ceiling_d=ceiling,
        gpu_hours=gpu_hours,
        run_usd=priced(gpu_hours, usd_per_gpu_hour, usd_per_gpu_hour_high),
        params_total=Measure(counted, "parameters"),
        step_s=step,
        hfu_ratio=used,
        mfu_ratio=useful,
        sentence=f"At {tflops:g} TFLOP/s on each of {devices:,} devices {', '.join(said)}.",
        warnings=("steps only: start-up, saves and failures come on top",),
    )


def _days(params: float, tokens: float, devices: int, tflops: float, recompute: str) -> float:
    seconds = train_seconds(params, tokens, devices, tflops, recompute=recompute == "full")
    return seconds / SECONDS_PER_DAY


def _params(
    params: float | None, shape: tuple[int | None, int | None, int | None, int | None]
) -> float:
    layers, hidden, vocab, seq_len = shape
    if params is not None and all(size is None for size in shape):
        return params
    if (
        params is None
        and layers is not None
        and hidden is not None
        and vocab is not None
        and seq_len is not None
    ):
        return narayanan_params(layers, hidden, vocab, seq_len)
    raise UserError(
        "expected params, or layers with hidden, vocab and seq_len_tokens", where="params"
    )


def _step(
    devices: int,
    tflops: float,
    shape: tuple[int | None, int | None, int | None, int | None],
    batch: int | None,
    peak_tflops: float | None,
    recompute: bool,
) -> tuple[Measure, Measure, Measure]:
    """Seconds of a step, HFU and MFU; missing without a shape and a batch, or a peak."""
    layers, hidden, vocab, seq_len = shape
    no_peak = Measure.missing("ratio", "the peak of a device was not given")
    used = no_peak if peak_tflops is None else Measure(tflops / peak_tflops, "ratio")
    if batch is None or layers is None or hidden is None or vocab is None or seq_len is None:
        reason = "shape and batch were not both given"
        return Measure.missing("s", reason), used, Measure.missing("ratio", reason)
    model = korthikanti_model_flops(batch, seq_len, layers, hidden, vocab)
    executed = narayanan_flops(batch, seq_len, layers, hidden, vocab) if recompute else model
    step_s = executed / (devices * tflops * 1e12)
    if peak_tflops is None:
        return Measure(step_s, "s"), used, no_peak
    useful = model / step_s / (devices * peak_tflops * 1e12)
    return Measure(step_s, "s"), used, Measure(useful, "ratio")


CALCULATORS = (train_time,)
