"""Own devices against rented ones, per hour in which they are used."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Parameter
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.spoken import spoken_ratio
from steptax.app.errors import UserError

HOURS_PER_YEAR = 8766.0
_RATE = "USD/GPU-hour"


@dataclass(frozen=True, kw_only=True)
class BuildOrRent(Result):
    """Price of a used hour of an own device, and from which use on it is below the rent."""

    headline: str = "saved_usd_per_gpu_hour"

    saved_usd_per_gpu_hour: Measure
    """Rent less the price of an own hour; below 0 renting is cheaper."""
    ceiling: Measure
    """The same if every hour were used."""
    owned_usd_per_gpu_hour: Measure
    break_even_utilisation_ratio: Measure
    """Use above which owning is cheaper."""
    energy_usd_per_gpu_hour: Measure
    usd_per_gpu_year: Measure
    """What an own device costs a year, used or not."""


def annuity(years: float, interest_ratio: float) -> float:
    """Yearly payment that pays 1 back with interest in ``years`` years (capital recovery factor).

    r / (1 - (1 + r)^-n); 1 / n without interest.
    """
    if interest_ratio == 0:
        return 1.0 / years
    return float(interest_ratio / (1.0 - (1.0 + interest_ratio) ** -years))


def sinking_fund(years: float, interest_ratio: float) -> float:
    """Yearly saving that grows to 1 in ``years`` years: the annuity less the interest."""
    return annuity(years, interest_ratio) - interest_ratio


@calculator(
    name="build-or-rent",
    title="Build or rent",
    formula="owned price of a used hour = ((purchase CRF(r, n) - residual SFF(r, n) + other) / "
    "(8766 u)) + power PUE price of energy; break-even u = yearly cost / (8766 (rent - energy)); "
    "CRF = r / (1 - (1 + r)^-n), SFF = CRF - r",
    source="Capital recovery factor of engineering economics; parts of the cost as in Barroso, "
    "Holzle, Ranganathan, The Datacenter as a Computer, chapter 6",
    page="An own device costs the same whether it works or not, so what an hour of it costs is "
    "decided by how many hours are used. The purchase is of the system divided by its devices: "
    "processor, network and chassis are inside. Put hosting, people, repair and spares into the "
    "other costs: without them owning looks cheaper than it is.",
    parameters=(
        Parameter(
            "purchase_usd_per_gpu",
            "USD",
            "purchase of a device with its share of the system",
            above=0,
        ),
        Parameter("rent_usd_per_gpu_hour", _RATE, "rent of such a device", above=0),
        Parameter("years", "", "years of use", above=0, maximum=30),
        Parameter(
            "utilisation_ratio", "ratio", "share of all hours that are used", above=0, maximum=1
        ),
        Parameter("other_usd_per_gpu_year", "USD", "hosting, people, repair of a year", minimum=0),
        Parameter("interest_ratio", "ratio", "interest of a year", minimum=0, maximum=1),
        Parameter(
            "residual_ratio",
            "ratio",
            "share of the purchase that the sale brings at the end",
            minimum=0,
            maximum=1,
        ),
        Parameter("power_w", "W", "power while used, with its share of the node", minimum=0),
        Parameter(
            "pue", "", "power usage effectiveness, all power over that of machines", minimum=1
        ),
        Parameter("usd_per_kwh", "USD/kWh", "price of energy", minimum=0),
    ),
)
def build_or_rent(
    *,
    purchase_usd_per_gpu: float,
    rent_usd_per_gpu_hour: float,
    years: float,
    utilisation_ratio: float,
    other_usd_per_gpu_year: float | None = None,
    interest_ratio: float = 0.0,
    residual_ratio: float = 0.0,
    power_w: float | None = None,
    pue: float = 1.0,
    usd_per_kwh: float | None = None,
) -> BuildOrRent:
    """Price of an own hour and its break-even.

    Raises:
        UserError: energy is given in part.
    """
    if (power_w is None) != (usd_per_kwh is None):
        gap = "power_w" if power_w is None else "usd_per_kwh"
        raise UserError("expected power and the price of energy together", where=gap)
    energy = 0.0 if power_w is None or usd_per_kwh is None else power_w / 1000 * pue * usd_per_kwh
    yearly = purchase_usd_per_gpu * (
        annuity(years, interest_ratio) - residual_ratio * sinking_fund(years, interest_ratio)
    ) + (other_usd_per_gpu_year or 0.0)
    owned = yearly / (HOURS_PER_YEAR * utilisation_ratio) + energy
    even = _break_even(yearly, rent_usd_per_gpu_hour - energy)
    warnings = []
    if other_usd_per_gpu_year is None:
        warnings.append("hosting, people and repair were not given and are not in it")
    if power_w is None:
        warnings.append("energy was not given and is not in it")
    return BuildOrRent(
        owned_usd_per_gpu_hour=Measure(owned, _RATE),
        ceiling=Measure(rent_usd_per_gpu_hour - yearly / HOURS_PER_YEAR - energy, _RATE),
        saved_usd_per_gpu_hour=Measure(rent_usd_per_gpu_hour - owned, _RATE),
        break_even_utilisation_ratio=even,
        energy_usd_per_gpu_hour=Measure(energy, _RATE)
        if power_w is not None
        else Measure.missing(_RATE, "power and the price of energy were not given"),
        usd_per_gpu_year=Measure(yearly, "USD"),
        sentence=_sentence(owned, rent_usd_per_gpu_hour, utilisation_ratio, even),
        warnings=tuple(warnings),
    )


def _break_even(yearly_usd: float, margin_usd: float) -> Measure:
    if margin_usd <= 0:
        return Measure.missing("ratio", "the rent is below the energy alone: renting is cheaper")
    share = yearly_usd / (HOURS_PER_YEAR * margin_usd)
    if share > 1:
        return Measure.missing("ratio", "renting is cheaper even if every hour were used")
    return Ratio(max(share, 0.0))


def _sentence(owned: float, rent: float, used: float, even: Measure) -> str:
    word = "less" if owned < rent else "more"
    text = (
        f"At {spoken_ratio(used)} use an own hour costs ${owned:.2f}, ${abs(rent - owned):.2f} "
        f"{word} than the rent"
    )
    if even.value is None:
        return f"{text}; {even.reason}."
    return f"{text}; owning is cheaper from {spoken_ratio(even.value)} use on."


CALCULATORS = (build_or_rent,)
