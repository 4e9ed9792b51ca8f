"""The typed objects of procurement. They hold no logic beyond their printed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from steptax.app.compute.calculators.base import Swing
from steptax.app.compute.measure import Measure


@dataclass(frozen=True)
class Option:
    """One device at one price, and what a result costs and takes on it."""

    name: str
    """Device, and what tells it from others of the list."""
    device: str | None
    """Key in the table of devices; None where the name is not in it."""
    gpus: int
    price: Decimal | None
    """USD per GPU-hour; None where no offer fits."""
    price_text: str
    """Who offers it and when, or why there is no price."""
    measures: Mapping[str, Measure]
    """By name; the keys are ``MEASURES`` of the view."""
    badge: str
    """measured, published or spec."""
    source: str
    is_own: bool = False
    on_frontier: bool = False
    notes: tuple[str, ...] = ()
    kind: str = ""
    """Segment and term of the offer; empty where they are not known."""

    def as_json(self) -> dict[str, Any]:
        """As every command prints it."""
        return {
            "name": self.name,
            "device": self.device,
            "gpus": self.gpus,
            "usd_per_gpu_hour": self.price,
            "price": self.price_text,
            "kind": self.kind or None,
            "badge": self.badge,
            "source": self.source,
            "is_own": self.is_own,
            "on_frontier": self.on_frontier,
            "notes": list(self.notes),
        } | {name: measure.as_json() for name, measure in self.measures.items()}


@dataclass(frozen=True)
class Procurement:
    """Options for one piece of work, best cost first; those without a price come last."""

    work: str
    """What the options are asked to do."""
    result: str
    """What one result is, e.g. ``1,000 steps``."""
    sentence: str
    offers: str
    """Which offers were looked at."""
    options: tuple[Option, ...]
    tornado: tuple[Swing, ...] = ()
    """What moves the cost of the best option that is not the job's own."""
    tornado_of: str | None = None
    notes: tuple[str, ...] = ()
    caveat: str | None = None
    columns: tuple[str, ...] = ()
    """Measures that the options have, in the order in which they are shown."""

    @property
    def own_device(self) -> str | None:
        """Key of the device that the job has now; None for a public benchmark."""
        return next((option.device for option in self.options if option.is_own), None)

    def as_json(self) -> dict[str, Any]:
        """As every command prints it."""
        return {
            "work": self.work,
            "result": self.result,
            "sentence": self.sentence,
            "offers": self.offers,
            "options": [option.as_json() for option in self.options],
            "tornado_of": self.tornado_of,
            "tornado": [vars(swing) for swing in self.tornado],
            "notes": list(self.notes),
            "caveat": self.caveat,
        }
