"""Changes to a job as text, the same in a link, on the command line and in a saved scenario.

``ranks:0,7``  ``ranks:0-7``  ``worst:3``  ``stage:3``  ``dp:1``  ``optype:forward-compute``:
these are ideal;
``stages``  ``layers:8,8,8,8>9,9,8,6``  ``microbatches``: computing is dealt anew;
``gc``: no pauses of the collector;
``kernel:*-compute:2``  ``network:2``  ``device:1.2``  ``device:0=1.2,7=0.9``: so much faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from steptax.app.errors import UserError
from steptax.app.whatif.optypes import canonical

#: Ranks that one range may name.
_MOST_RANKS = 1_000_000


class FixKind(StrEnum):
    """What a change does; the word that its text begins with."""

    RANKS = "ranks"
    WORST = "worst"
    STAGE = "stage"
    DP_RANK = "dp"
    OPTYPE = "optype"
    STAGES = "stages"
    LAYERS = "layers"
    MICROBATCHES = "microbatches"
    GC = "gc"
    KERNEL = "kernel"
    NETWORK = "network"
    DEVICE = "device"


@dataclass(frozen=True)
class Fix:
    """One change. Which fields count depends on ``kind``.

    ``numbers``: ranks, or the one stage, data-parallel rank or count; of ``layers`` those that
    each stage has, and ``moved`` those that it gets. ``name``: operation type or pattern.
    ``factor``: how many times as fast; ``rates`` the same by rank.
    """

    kind: FixKind
    numbers: tuple[int, ...] = ()
    moved: tuple[int, ...] = ()
    name: str = ""
    factor: float = 1.0
    rates: tuple[tuple[int, float], ...] = ()

    @property
    def text(self) -> str:
        """What ``parse_fix`` makes the same change of."""
        listed = ",".join(map(str, self.numbers))
        match self.kind:
            case FixKind.STAGES | FixKind.MICROBATCHES | FixKind.GC:
                return self.kind.value
            case FixKind.LAYERS:
                return f"layers:{listed}>{','.join(map(str, self.moved))}"
            case FixKind.OPTYPE:
                return f"optype:{self.name}"
            case FixKind.KERNEL:
                return f"kernel:{self.name}:{self.factor:g}"
            case FixKind.NETWORK:
                return f"network:{self.factor:g}"
            case FixKind.DEVICE:
                rates = ",".join(f"{rank}={rate:g}" for rank, rate in self.rates)
                return f"device:{rates or f'{self.factor:g}'}"
            case _:
                return f"{self.kind.value}:{listed}"

    @property
    def title(self) -> str:
        """For people, as part of a sentence: ``stage 3 is like the others``."""
        first = self.numbers[0] if self.numbers else 0
        match self.kind:
            case FixKind.RANKS:
                more = ", ..." if len(self.numbers) > 8 else ""
                named = ", ".join(map(str, self.numbers[:8])) + more
                one = len(self.numbers) == 1
                return f"rank{'' if one else 's'} {named} {'is' if one else 'are'} like the others"
            case FixKind.WORST if first == 1:
                return "the slowest rank is like the others"
            case FixKind.WORST:
                return f"the {first} slowest ranks are like the others"
            case FixKind.STAGE:
                return f"pipeline stage {first} is like the others"
            case FixKind.DP_RANK:
                return f"data-parallel rank {first} is like the others"
            case FixKind.OPTYPE:
                return f"every {self.name} takes the ideal time"
            case FixKind.STAGES:
                return "all stages compute as much"
            case FixKind.LAYERS:
                return f"stages have {', '.join(map(str, self.moved))} layers"
            case FixKind.MICROBATCHES:
                return "all micro-batches of a step are equal"
            case FixKind.GC:
                return "there are no pauses for garbage collection"
            case FixKind.KERNEL:
                return f"{self.name} is {self.factor:g} times as fast"
            case FixKind.NETWORK:
                return f"the network is {self.factor:g} times as fast"
            case FixKind.DEVICE:
                if self.rates:
                    named = ", ".join(f"rank {r} {rate:g} times" for r, rate in self.rates[:4])
                    more = ", ..." if len(self.rates) > 4 else ""
                    return f"other devices compute {named}{more} as fast"
                return f"every device computes {self.factor:g} times as fast"


def parse_fix(text: str) -> Fix:
    """The change that ``text`` names; UserError says what was expected."""
    word, _, rest = text.strip().partition(":")
    try:
        kind = FixKind(word.strip().lower())
    except ValueError:
        raise UserError(
            f"there is no fix {text!r}",
            where="fix",
            hint=f"use one of {', '.join(_FORMS.values())}",
        ) from None
    try:
        return _READERS[kind](kind, rest.strip())
    except ValueError as error:
        why = f": {error}" if str(error) else ""
        raise UserError(f"expected {_FORMS[kind]}, found {text!r}{why}", where="fix") from None


def _alone(kind: FixKind, rest: str) -> Fix:
    if rest:
        raise ValueError("nothing follows")
    return Fix(kind)


def _ranks(kind: FixKind, rest: str) -> Fix:
    numbers: set[int] = set()
    for part in rest.split(","):
        first, dash, last = part.partition("-") if part.strip()[:1] != "-" else (part, "", "")
        begin, *_, end = _whole(f"{first},{last if dash else first}")
        if not 0 <= end - begin < _MOST_RANKS:
            raise ValueError(f"a range that rises, of at most {_MOST_RANKS:,} ranks")
        numbers.update(range(begin, end + 1))
    return Fix(kind, tuple(sorted(numbers)))


def _one(kind: FixKind, rest: str) -> Fix:
    numbers = _whole(rest)
    if len(numbers) != 1:
        raise ValueError("one number")
    if kind is FixKind.WORST and numbers[0] < 1:
        raise ValueError("at least 1")
    return Fix(kind, numbers)


def _optype(kind: FixKind, rest: str) -> Fix:
    if not rest:
        raise ValueError("no type")
    return Fix(kind, name=canonical(rest))


def _layers(kind: FixKind, rest: str) -> Fix:
    now, arrow, then = rest.partition(">")
    if not arrow:
        raise ValueError("layers of each stage now, >, and then")
    return Fix(kind, _whole(now), _whole(then))


def _kernel(kind: FixKind, rest: str) -> Fix:
    name, _, factor = rest.rpartition(":")
    if not name:
        raise ValueError("a pattern and a factor")
    return Fix(kind, name=name, factor=_factor(factor))


def _network(kind: FixKind, rest: str) -> Fix:
    return Fix(kind, factor=_factor(rest))


def _device(kind: FixKind, rest: str) -> Fix:
    if "=" not in rest:
        return Fix(kind, factor=_factor(rest))
    rates = {}
    for part in rest.split(","):
        rank, _, rate = part.partition("=")
        rates[int(rank)] = _factor(rate)
    return Fix(kind, rates=tuple(sorted(rates.items())))


def _whole(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError("whole numbers, separated by commas") from None
    if min(numbers) < 0:
        raise ValueError("no negative numbers")
    return numbers


def _factor(text: str) -> float:
    factor = float(text)
    if not 0 < factor < float("inf"):
        raise ValueError("a factor above 0; 2 means twice as fast")
    return factor


_READERS: dict[FixKind, Callable[[FixKind, str], Fix]] = {
    FixKind.RANKS: _ranks,
    FixKind.WORST: _one,
    FixKind.STAGE: _one,
    FixKind.DP_RANK: _one,
    FixKind.OPTYPE: _optype,
    FixKind.STAGES: _alone,
    FixKind.LAYERS: _layers,
    FixKind.MICROBATCHES: _alone,
    FixKind.GC: _alone,
    FixKind.KERNEL: _kernel,
    FixKind.NETWORK: _network,
    FixKind.DEVICE: _device,
}
_FORMS: dict[FixKind, str] = {
    FixKind.RANKS: "ranks:0,7 or ranks:0-7",
    FixKind.WORST: "worst:3",
    FixKind.STAGE: "stage:3",
    FixKind.DP_RANK: "dp:1",
    FixKind.OPTYPE: "optype:forward-compute",
    FixKind.STAGES: "stages",
    FixKind.LAYERS: "layers:8,8,8,8>9,9,8,6",
    FixKind.MICROBATCHES: "microbatches",
    FixKind.GC: "gc",
    FixKind.KERNEL: "kernel:*-compute:2",
    FixKind.NETWORK: "network:2",
    FixKind.DEVICE: "device:1.2 or device:0=1.2,7=0.9",
}
