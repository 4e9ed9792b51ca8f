"""Dollars for GPU time, exact until the cent. No price is assumed anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from steptax.app.errors import UserError

HOUR_S = 3600
DAY_S = 86_400
CENT = Decimal("0.01")
#: Parts of a dollar that what a provider charged is divided into.
FINE = 1_000_000_000


def check_price(usd_per_gpu_hour: Decimal) -> Fraction:
    """The price as an exact number, USD per GPU-hour.

    Raises UserError for a price that is not a positive number: zero stands for a price that
    somebody failed to fetch.
    """
    if not usd_per_gpu_hour.is_finite() or usd_per_gpu_hour <= 0:
        raise UserError(
            f"a price must be a positive number of USD per GPU-hour, not {usd_per_gpu_hour}",
            hint="leave the price out to see GPU-hours only",
        )
    return Fraction(usd_per_gpu_hour)


def exact_usd(gpu_seconds: Fraction | int, usd_per_gpu_hour: Decimal) -> Fraction:
    """Cost of GPU time, USD, without rounding."""
    return Fraction(gpu_seconds) * check_price(usd_per_gpu_hour) / HOUR_S


def to_cents(usd: Fraction) -> Decimal:
    """An exact amount rounded to the cent, half to even."""
    return Decimal(round(usd * 100)) * CENT


def usd(gpu_seconds: Fraction | int, usd_per_gpu_hour: Decimal) -> Decimal:
    """Cost of GPU time, USD to the cent."""
    return to_cents(exact_usd(gpu_seconds, usd_per_gpu_hour))


def usd_per_hour(gpus: int, usd_per_gpu_hour: Decimal) -> Decimal:
    """What ``gpus`` devices cost in an hour, USD to the cent."""
    return usd(gpus * HOUR_S, usd_per_gpu_hour)


def usd_per_day(share_ratio: float, gpus: int, usd_per_gpu_hour: Decimal) -> Decimal:
    """What a share of the paid time of ``gpus`` devices costs in a day, USD to the cent."""
    return usd(Fraction(share_ratio) * gpus * DAY_S, usd_per_gpu_hour)


def split_finely(amounts: Sequence[Fraction]) -> list[Fraction]:
    """Exact amounts as whole billionths of a dollar that add up to their sum in these.

    What a provider charges is whole cents, which stay whole. The exact parts of many of them have
    no denominator in common, and a sum of thousands would have one of thousands of digits.
    """
    fine = [amount * FINE for amount in amounts]
    down = [amount.numerator // amount.denominator for amount in fine]
    left = round(sum(float(amount - floor) for amount, floor in zip(fine, down, strict=True)))
    order = sorted(range(len(fine)), key=lambda i: (down[i] - fine[i], i))
    for place in order[:left]:
        down[place] += 1
    return [Fraction(amount, FINE) for amount in down]


def split_to_cents(amounts: Sequence[Fraction]) -> list[Decimal]:
    """Exact amounts rounded to the cent so that they add up to their rounded sum.

    Largest remainder: all are rounded down, and the cents left over go to the largest fractions
    of a cent, earlier amounts first among equals.
    """
    cents = [amount * 100 for amount in amounts]
    down = [amount.numerator // amount.denominator for amount in cents]
    left = round(sum(cents, Fraction(0))) - sum(down)
    order = sorted(range(len(cents)), key=lambda i: (float(down[i] - cents[i]), i))
    for place in order[:left]:
        down[place] += 1
    return [Decimal(amount) * CENT for amount in down]
