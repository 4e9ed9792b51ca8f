"""The price at which another device costs as much per useful result."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure
from steptax.app.errors import UserError


@dataclass(frozen=True, kw_only=True)
class BreakEven(Result):
    """Cost of a useful EFLOP on A and on B, and the hourly price at which B equals A."""

    headline: str = "b_break_even_usd_per_gpu_hour"

    b_break_even_usd_per_gpu_hour: Measure
    ceiling: Measure
    """Break-even price if B's whole peak were used in every paid hour."""
    a_usd_per_eflop: Measure
    b_usd_per_eflop: Measure
    a_energy_usd_per_eflop: Measure
    b_energy_usd_per_eflop: Measure
    a_days: Measure
    b_days: Measure


def _device(letter: str) -> tuple[Parameter, ...]:
    name = letter.upper()
    return (
        Parameter(f"{letter}_usd_per_gpu_hour", "USD/GPU-hour", f"price of {name}", minimum=0),
        Parameter(
            f"{letter}_peak_tflops",
            "TFLOP/s",
            f"dense peak of {name} in the precision used",
            above=0,
        ),
        Parameter(
            f"{letter}_mfu_ratio",
            "ratio",
            f"model FLOP utilisation in the steps on {name}",
            above=0,
            maximum=1,
        ),
        Parameter(
            f"{letter}_goodput_ratio",
            "ratio",
            f"share of paid time in useful steps on {name}",
            above=0,
            maximum=1,
        ),
        Parameter(
            f"{letter}_power_w",
            "W",
            f"power of {name} with its share of the node and cooling",
            minimum=0,
        ),
        Parameter(f"{letter}_gpus", "", f"GPUs of {name}, for the days", Kind.INT, minimum=1),
    )


@calculator(
    name="break-even",
    title="Slower but cheaper",
    formula="USD per useful EFLOP = price 1e18 / (3600 peak MFU goodput); break-even price of B = "
    "price of A (peak MFU goodput)_B / (peak MFU goodput)_A",
    source="Definition of model FLOP utilisation: Chowdhery et al. 2022, PaLM, section 4.1",
    page="What counts is the price of a useful operation. Take utilisation and goodput of each "
    "device from measurements of this workload: a faster device is seldom used as well as the one "
    "before, because communication and waiting do not get faster with it. Energy belongs in only "
    "where you pay for it beside the hour. Work gives the days that each needs.",
    parameters=(
        *_device("a"),
        *_device("b"),
        Parameter(
            "usd_per_kwh", "USD/kWh", "price of energy, where paid beside the hour", minimum=0
        ),
        Parameter("work_eflop", "EFLOP", "useful work of the run, for the days", above=0),
        Parameter("deadline_d", "d", "days available", above=0),
    ),
)
def break_even(
    *,
    a_usd_per_gpu_hour: float,
    a_peak_tflops: float,
    a_mfu_ratio: float,
    a_goodput_ratio: float,
    a_power_w: float | None = None,
    a_gpus: int | None = None,
    b_usd_per_gpu_hour: float | None = None,
    b_peak_tflops: float | None = None,
    b_mfu_ratio: float | None = None,
    b_goodput_ratio: float | None = None,
    b_power_w: float | None = None,
    b_gpus: int | None = None,
    usd_per_kwh: float | None = None,
    work_eflop: float | None = None,
    deadline_d: float | None = None,
) -> BreakEven:
    """Price per useful EFLOP of A, and of B where B is described.

    Raises:
        UserError: B is described in part; utilisation is never assumed to be that of A.
    """
    a = _useful_eflop_per_h(a_peak_tflops, a_mfu_ratio, a_goodput_ratio)
    b = None
    described = {
        "b_peak_tflops": b_peak_tflops,
        "b_mfu_ratio": b_mfu_ratio,
        "b_goodput_ratio": b_goodput_ratio,
    }
    if b_peak_tflops is not None and b_mfu_ratio is not None and b_goodput_ratio is not None:
        b = _useful_eflop_per_h(b_peak_tflops, b_mfu_ratio, b_goodput_ratio)
    elif any(value is not None for value in (*described.values(), b_usd_per_gpu_hour)):
        gap = next(name for name, value in described.items() if value is None)
        raise UserError("expected beside the rest of B: it is not taken from A", where=gap)

    energy_a = _energy_usd_per_h(a_power_w, usd_per_kwh)
    energy_b = _energy_usd_per_h(b_power_w, usd_per_kwh)
    even = _break_even(a_usd_per_gpu_hour, a, b, energy_a, energy_b)
    days_a, days_b = _days(work_eflop, a, a_gpus), _days(work_eflop, b, b_gpus)
    return BreakEven(
        headline="a_usd_per_eflop" if b is None else "b_break_even_usd_per_gpu_hour",
        b_break_even_usd_per_gpu_hour=even,
        ceiling=_break_even(
            a_usd_per_gpu_hour,
            a,
            None if b_peak_tflops is None else _useful_eflop_per_h(b_peak_tflops, 1.0, 1.0),
            energy_a,
            energy_b,
        ),
        a_usd_per_eflop=Measure((a_usd_per_gpu_hour + (energy_a.value or 0.0)) / a, "USD/EFLOP"),
        b_usd_per_eflop=_per_eflop(b_usd_per_gpu_hour, b, energy_b),
        a_energy_usd_per_eflop=_energy_per_eflop(energy_a, a),
        b_energy_usd_per_eflop=_energy_per_eflop(energy_b, b),
        a_days=days_a,
        b_days=days_b,
        sentence=_sentence(a_usd_per_gpu_hour, (energy_a.value or 0.0), a, even),
        warnings=_late(days_a, days_b, deadline_d),
    )


def _useful_eflop_per_h(peak_tflops: float, mfu_ratio: float, goodput_ratio: float) -> float:
    return 3600 * peak_tflops * 1e12 * mfu_ratio * goodput_ratio / 1e18


def _energy_usd_per_h(power_w: float | None, usd_per_kwh: float | None) -> Measure:
    if power_w is None or usd_per_kwh is None:
        return Measure.missing("USD/GPU-hour", "power and the price of energy were not both given")
    return Measure(power_w / 1000 * usd_per_kwh, "USD/GPU-hour")


def _break_even(
    a_price: float, a: float, b: float | None, energy_a: Measure, energy_b: Measure
) -> Measure:
    unit = "USD/GPU-hour"
    if b is None:
        return Measure.missing(unit, "the second device was not described")
    if (energy_a.value is None) != (energy_b.value is None):
        return Measure.missing(unit, "energy is given for one device and not for the other")
    price = (a_price + (energy_a.value or 0.0)) * b / a - (energy_b.value or 0.0)
    if price < 0:
        return Measure.missing(unit, "B costs more in energy alone than A in all")
    return Measure(price, unit)


def _per_eflop(price: float | None, useful: float | None, energy: Measure) -> Measure:
    if price is None or useful is None:
        return Measure.missing("USD/EFLOP", "price or speed of the second device was not given")
    return Measure((price + (energy.value or 0.0)) / useful, "USD/EFLOP")


def _energy_per_eflop(energy: Measure, useful: float | None) -> Measure:
    if useful is None:
        return Measure.missing("USD/EFLOP", "the second device was not described")
    return energy.map(lambda usd_per_h: usd_per_h / useful, "USD/EFLOP")


def _days(work_eflop: float | None, useful: float | None, gpus: int | None) -> Measure:
    if work_eflop is None or useful is None or gpus is None:
        return Measure.missing("d", "work, speed and GPUs were not all given")
    return Measure(work_eflop / (useful * gpus) / 24, "d")


def _late(days_a: Measure, days_b: Measure, deadline_d: float | None) -> tuple[str, ...]:
    if deadline_d is None:
        return ()
    return tuple(
        f"{name} needs {days.value:.1f} days, more than the {deadline_d:g} available"
        for name, days in (("A", days_a), ("B", days_b))
        if days.value is not None and days.value > deadline_d
    )


def _sentence(price: float, energy_usd_per_h: float, useful: float, even: Measure) -> str:
    text = f"A useful EFLOP on A costs ${(price + energy_usd_per_h) / useful:.2f}"
    if even.value is None:
        return f"{text}; {even.reason}."
    return f"{text}; B costs the same at ${even.value:.2f} per GPU-hour."


CALCULATORS = (break_even,)
