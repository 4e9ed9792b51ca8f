"""Which jobs the fault laboratory makes: every cause, none, and two at once, with their sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from steptax.benchmarks.product.fault_model import (
    CAUSES,
    GPUS_PER_HOST,
    NOISES,
    PATTERNS,
    ROUGH_NOISES,
    SCOPES,
    UNNAMED,
    Fault,
    Plan,
    Shape,
    ranks_of,
)

#: Excess of the faults that are scored, shares of the step; and of those too small to be asked for.
EXCESS_RANGE = (0.05, 0.6)
SMALL_RANGE = (0.015, 0.04)
#: A fault that is scored lasts at least so many steps; one that comes and goes takes longer.
LEAST_STEPS = 50
LEAST_STEPS_NOW_AND_THEN = 150
DUTY_RANGE = (0.12, 0.45)
#: Windows of no more steps than this are short ones.
SHORT_STEPS = 120
LOST_RANGE = (0.001, 0.01)
_DECOYED = ("gc", "input_loader", "host_cpu", "sequence", "pcie")
_DATA = (Shape(8), Shape(16), Shape(32), Shape(64), Shape(256))
_MIXED = (Shape(8, 2, 4), Shape(8, 4, 1), Shape(16, 4, 2), Shape(8, 4, 8), Shape(16, 2, 8))
_EXPERTS = (Shape(16, experts=4), Shape(32, experts=8), Shape(16, 2, 2, experts=4))
_LARGE = (Shape(1024), Shape(32, 8, 8), Shape(64, 8, 8), Shape(4096))
_MANY = (Shape(64), Shape(256), Shape(32, 4, 4), Shape(1024))
_NOW_AND_THEN = ("gc", "input_loader", "kernel")
_HALVES = ("host_cpu", "input_loader")
_SIGNS = ("thermal", "power_cap", "ecc", "xid")
_WIDE = (Shape(32), Shape(64), Shape(256), Shape(16, 4, 2), Shape(8, 4, 8))


@dataclass(frozen=True)
class Setting:
    """How much is made."""

    per_cause: int
    """Jobs per cause, with its signals, and as many without."""
    healthy: int
    pairs: int
    small: int
    """Jobs with a fault too small to be asked for."""
    decoys: int
    """Jobs with a fault on a rank whose device shows signs of another one that costs nothing."""
    unnamed: int
    """Jobs with a rank that is slow for no recorded reason, and devices that look odd: another
    rank's, all of them, its own long before, its own long after."""
    now_and_then: int
    """Jobs with a fault that comes and goes: slow in fewer than half of the steps."""
    lost: int
    """Jobs of 64 to 1,024 ranks of which rows were lost, half of them healthy."""
    short: int
    """Healthy jobs of 20 to 120 steps."""
    rough: int
    """Jobs per rough noise with a fault, and as many without."""
    halves: int
    """Jobs with a fault on a host that holds half of the ranks."""
    large: int
    """Jobs of 1,024 to 4,096 ranks, half of them healthy."""
    steps: tuple[int, int]


SMALL = Setting(1, 4, 2, 1, 2, 2, 3, 1, 5, 1, 2, 0, (240, 320))
FULL = Setting(3, 30, 16, 8, 16, 16, 24, 12, 40, 10, 12, 2, (240, 900))


def plans(setting: Setting, seed: int) -> list[Plan]:
    """The jobs of ``setting``; the same seed gives the same."""
    g = np.random.default_rng(seed)
    out = []
    for cause in CAUSES:
        for signals in (True, False):
            out += [_plan(g, setting, [cause], signals) for _ in range(setting.per_cause)]
    out += [_plan(g, setting, []) for _ in range(setting.healthy)]
    single = [c for c in CAUSES if SCOPES[c] in ("rank", "host")]
    for _ in range(setting.pairs):
        both = g.choice(single, 2, replace=False)
        out.append(_plan(g, setting, [str(c) for c in both]))
    out += [
        _plan(g, setting, [str(g.choice(single))], excess=SMALL_RANGE) for _ in range(setting.small)
    ]
    # A second sign of a device that is slow would be a second cause, so the decoyed are others.
    out += [
        _with_decoy(g, _plan(g, setting, [str(g.choice(_DECOYED))])) for _ in range(setting.decoys)
    ]
    for i in range(setting.large):
        shape = _LARGE[int(g.integers(len(_LARGE)))]
        causes = [] if i % 2 else [str(g.choice(single))]
        out.append(_plan(g, setting, causes, shape=shape))
    # Drawn after all others, so that these are what they were.
    out += [_unnamed(g, setting, i) for i in range(setting.unnamed)]
    out += [_now_and_then(g, setting, i) for i in range(setting.now_and_then)]
    for i in range(setting.lost):
        shape = _MANY[int(g.integers(len(_MANY)))]
        plan = _plan(g, setting, [] if i % 2 else [str(g.choice(single))], shape=shape)
        out.append(replace(plan, lost_ratio=float(np.exp(g.uniform(*np.log(LOST_RANGE))))))
    every_noise = (*NOISES, *ROUGH_NOISES)
    for i in range(setting.short):
        plan = _plan(g, setting, [], shape=_DATA[int(g.integers(len(_DATA)))])
        noise = every_noise[i % len(every_noise)]
        out.append(replace(plan, steps=int(g.integers(20, SHORT_STEPS + 1)), noise=noise))
    for noise in ROUGH_NOISES:
        for i in range(2 * setting.rough):
            causes = [] if i % 2 else [str(g.choice(single))]
            out.append(replace(_plan(g, setting, causes), noise=noise))
    out += [_half(g, setting, i) for i in range(setting.halves)]
    return out


def _plan(
    g: np.random.Generator,
    setting: Setting,
    causes: list[str],
    signals: bool = True,
    excess: tuple[float, float] = EXCESS_RANGE,
    shape: Shape | None = None,
) -> Plan:
    shape = shape or _shape(g, causes)
    steps = int(g.integers(*setting.steps))
    noise = NOISES[int(g.integers(len(NOISES)))]
    taken: set[int] = set()
    faults = []
    for cause in causes:
        ranks = _ranks(g, cause, shape, taken)
        taken |= set(ranks)
        first, last = _span(g, cause, steps)
        size = float(np.exp(g.uniform(*np.log(excess))))
        faults.append(Fault(cause, ranks, first, last, size, signals))
    return Plan(int(g.integers(2**31)), shape, steps, noise, tuple(faults))


def _with_decoy(g: np.random.Generator, plan: Plan) -> Plan:
    """The plan, and devices of the same ranks that look odd while nothing comes of it."""
    (fault,) = plan.faults
    sign = str(g.choice(("thermal", "power_cap", "ecc", "xid")))
    decoy = Fault(sign, fault.ranks, fault.first, fault.last, 0.0)
    return replace(plan, decoys=(decoy,))


def _unnamed(g: np.random.Generator, setting: Setting, i: int) -> Plan:
    """Slow compute of one rank, and signs of devices that explain nothing."""
    plan = _plan(g, setting, ["kernel"], signals=False)
    (fault,) = plan.faults
    everybody = tuple(range(plan.shape.ranks))
    other = (int((fault.ranks[0] + g.integers(1, plan.shape.ranks)) % plan.shape.ranks),)
    last = plan.steps - 1
    late = min(last, fault.first + 40)
    decoy = (
        Fault(str(g.choice(_SIGNS)), other, fault.first, fault.last, 0.0),
        Fault(str(g.choice(_SIGNS[:2])), everybody, fault.first, fault.last, 0.1),
        Fault(str(g.choice(_SIGNS)), fault.ranks, 0, last, 0.0),
        Fault(str(g.choice(_SIGNS[2:])), fault.ranks, late, last, 0.0),
    )[i % 4]
    if i % 4 == 2 and fault.first == 0:
        # From the first step on, nothing tells an old sign from a new one.
        return plan
    return replace(plan, decoys=(decoy,))


def _now_and_then(g: np.random.Generator, setting: Setting, i: int) -> Plan:
    cause = _NOW_AND_THEN[i % len(_NOW_AND_THEN)]
    plan = _plan(g, setting, [cause], signals=cause not in UNNAMED)
    (fault,) = plan.faults
    first = min(fault.first, plan.steps - LEAST_STEPS_NOW_AND_THEN)
    fault = replace(
        fault,
        first=first,
        last=max(fault.last, first + LEAST_STEPS_NOW_AND_THEN - 1),
        duty_ratio=float(g.uniform(*DUTY_RANGE)),
        pattern=PATTERNS[i // len(_NOW_AND_THEN) % len(PATTERNS)],
    )
    return replace(plan, faults=(fault,))


def _half(g: np.random.Generator, setting: Setting, i: int) -> Plan:
    """One of two hosts is slow: the median of all ranks lies between the halves."""
    plan = _plan(g, setting, [_HALVES[i % len(_HALVES)]], shape=Shape(2 * GPUS_PER_HOST))
    (fault,) = plan.faults
    host = fault.ranks[0] // GPUS_PER_HOST
    ranks = tuple(range(host * GPUS_PER_HOST, (host + 1) * GPUS_PER_HOST))
    return replace(plan, faults=(replace(fault, ranks=ranks),))


def _shape(g: np.random.Generator, causes: list[str]) -> Shape:
    scopes = {SCOPES[c] for c in causes}
    pool: tuple[Shape, ...]
    if "expert" in scopes:
        pool = _EXPERTS
    elif scopes & {"stage", "tp_group"}:
        pool = tuple(s for s in _MIXED if "stage" in scopes or s.tp > 1)
    elif "dp_group" in scopes:
        # With fewer groups there is nothing to hold one against; inside of a host it is no network.
        pool = tuple(s for s in _MIXED if s.tp * s.pp >= 3 and s.tp * s.dp > GPUS_PER_HOST)
    elif "host" in scopes:
        # Hosts that hold half of the ranks have jobs of their own.
        pool = _WIDE
    else:
        pool = _DATA + _MIXED
    return pool[int(g.integers(len(pool)))]


def _ranks(g: np.random.Generator, cause: str, shape: Shape, taken: set[int]) -> tuple[int, ...]:
    """Who is at fault; nobody who is at fault already."""
    at = ranks_of(shape)
    for _ in range(100):
        one = int(g.integers(shape.ranks))
        same = np.ones(shape.ranks, dtype=bool)
        scope = SCOPES[cause]
        if scope in ("job", "moving"):
            return ()
        if scope == "stage":
            one = shape.ranks - 1 if g.random() < 0.7 else one
        kinds = {
            "rank": ("tp", "dp", "pp"),
            "tp_group": ("dp", "pp"),
            "dp_group": ("tp", "pp"),
            "replica": ("dp",),
            "stage": ("pp",),
            "expert": ("ep",),
            "host": ("host",),
        }[scope]
        for kind in kinds:
            same &= at[kind] == at[kind][one]
        ranks = tuple(int(r) for r in np.flatnonzero(same))
        if not taken & set(ranks):
            return ranks
    raise AssertionError(f"no room for {cause} in {shape} of {GPUS_PER_HOST} a host")


def _span(g: np.random.Generator, cause: str, steps: int) -> tuple[int, int]:
    if SCOPES[cause] in ("stage", "moving") or cause in ("launch_bound", "checkpoint"):
        return 0, steps - 1
    if SCOPES[cause] != "job" and g.random() < 0.1:
        first = 0
    else:
        first = int(g.integers(int(0.15 * steps), steps - LEAST_STEPS - 10))
    if g.random() < 0.4:
        return first, steps - 1
    return first, int(g.integers(first + LEAST_STEPS - 1, steps))
