"""What can be chosen on the procurement page: what the lake's offers and results tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steptax.app.compute.mfu.device_table import devices
from steptax.app.views.pricing.offers import UNKNOWN, Offer, load_offers
from steptax.app.views.procurement.public_results import PublicResult, benchmarks, load_results
from steptax.app.views.workspace import Workspace


@dataclass(frozen=True)
class Choices:
    """Offers and results of a lake, and the values by which they can be chosen."""

    offers: tuple[Offer, ...]
    results: tuple[PublicResult, ...]
    providers: tuple[str, ...]
    segments: tuple[str, ...]
    terms: tuple[str, ...]
    regions: tuple[str, ...]
    days: tuple[str, ...]
    """Days on which offers were seen, newest first."""
    devices: tuple[str, ...]
    """Keys of the devices that offers may mean."""
    benchmarks: Mapping[str, tuple[int, ...]]
    """Numbers of devices by benchmark."""
    rounds: tuple[str, ...]
    known_devices: tuple[str, ...]
    """Keys of the table of devices."""

    def devices_of(self, benchmark: str) -> tuple[str, ...]:
        """Keys of the devices that ran ``benchmark``, on the most sizes first."""
        sizes: dict[str, set[int]] = {}
        for result in self.results:
            found = result.device.device
            if result.benchmark == benchmark and found is not None and result.gpus is not None:
                sizes.setdefault(found.key, set()).add(result.gpus)
        return tuple(sorted(sizes, key=lambda key: (-len(sizes[key]), key)))


def choices(ws: Workspace) -> Choices:
    """Everything that can be chosen in this lake; all empty where nothing was ingested."""
    offers, results = load_offers(ws), load_results(ws)
    return Choices(
        offers=offers,
        results=results,
        providers=_values([o.provider for o in offers]),
        segments=_values([o.segment for o in offers]),
        terms=_values([o.term for o in offers]),
        regions=_values([o.region for o in offers]),
        days=tuple(reversed(_values([o.observed_on for o in offers]))),
        devices=_values([key for o in offers for key in o.devices]),
        benchmarks=benchmarks(results),
        rounds=_values([r.round for r in results]),
        known_devices=tuple(row.key for row in devices()),
    )


def _values(told: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(sorted({value for value in told if value is not None and value != UNKNOWN}))
