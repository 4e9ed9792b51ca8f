"""What link probes add to the verdict on a job: who is slow inside its collectives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steptax.app.compute.causes.hints import Explanation, Hint, PhaseExcess
from steptax.app.compute.collectives.link_probe import LinkFindings, SlowLinks, judge_links
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.spoken import spoken_ratio, spoken_us
from steptax.app.compute.straggler.arrival import Arrivals, arrivals
from steptax.app.compute.straggler.result import Kind, StragglerResult, Verdict
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.workspace import Workspace

#: Verdicts beside which a slow link may be the one to name.
_NOBODY_FOR_GOOD = (Kind.NONE, Kind.MOVING, Kind.MOST, Kind.SELDOM, Kind.PASSED)
_BOUND = (
    "an upper bound: the transfer, less what the collectives would take at the speed of the other "
    "links; a collective that is not bound by its slowest link gains less"
)


def with_links(ws: Workspace, loaded: LoadedJob, result: StragglerResult) -> StragglerResult:
    """``result`` with what the job's link probes tell; itself where there are none.

    A rank that is slow on all of its links is named where no rank is slow in its own work. It
    costs all ranks alike, and that the steps alone cannot show.
    """
    job_id = loaded.job["job_id"]
    if result.ranks is None or not ws.lake.segments("link_probes", job_id):
        return result
    rows = ws.engine.run("link_rows", job_id=job_id)
    steps = rows["step"].to_numpy()
    keep = (steps >= loaded.matrix.steps[0]) & (steps <= loaded.matrix.steps[-1])
    names = ("attempt", "step", "rank", "peer", "duration_us")
    columns = {name: rows[name].to_numpy()[keep].astype(np.int64) for name in names}
    hosts = {rank: place.get("host") for rank, place in loaded.places.items()}
    return judged(result, judge_links(columns, hosts), _transfer_us(loaded, result))


def judged(
    result: StragglerResult, found: LinkFindings, transfer_us: float | None
) -> StragglerResult:
    """``result`` with the findings; ``transfer_us`` is the mean transfer of a step, if known."""
    notes = tuple(_link_text(link) for link in found.links[:2])
    if found.reason is None and not found.links and not found.ranks:
        notes = (f"In {found.probes} link probes no rank and no link is slower than the others.",)
    worst = found.ranks[0] if found.ranks else None
    step_us, rules = result.step_us.value, result.rules
    verdict = result.verdict
    if worst is None or worst.ranks[0] not in result.ranks_used or not step_us:
        return replace(result, verdict=replace(verdict, notes=(*verdict.notes, *notes)))
    excess_us = None if transfer_us is None else transfer_us * worst.saved_ratio
    costly = excess_us is not None and excess_us >= rules.worker_excess_ratio * step_us
    if verdict.kind not in _NOBODY_FOR_GOOD or not costly or excess_us is None:
        more = (_rank_text(worst, None, None), *notes)
        return replace(result, verdict=replace(verdict, notes=(*verdict.notes, *more)))
    ranks = tuple(one.ranks[0] for one in found.ranks)
    text = _rank_text(worst, excess_us, step_us)
    others = (_rank_text(one, None, None) for one in found.ranks[1:3])
    return replace(
        result,
        verdict=Verdict(Kind.WORKER, text, ranks, notes=(*others, *notes)),
        slow_links=worst,
        link_excess_us=Measure(
            excess_us,
            "us",
            low=0.0,
            high=excess_us,
            level=result.basis.level,
            inputs=("comm_us", "link_probes"),
            warnings=(_BOUND,),
        ),
        recoverable_ratio=Ratio(
            min(1.0, excess_us / step_us),
            low=0.0,
            high=min(1.0, excess_us / step_us),
            level=result.basis.level,
            inputs=("comm_us", "link_probes"),
            warnings=(_BOUND,),
        ),
        explanation=_explanation(worst, excess_us, result.tax_ratio),
    )


def _transfer_us(loaded: LoadedJob, result: StragglerResult) -> float | None:
    """Mean transfer of a step, where the steps separate it from waiting."""
    part = loaded.matrix.select(result.coverage.step_places, result.coverage.rank_places)
    arrived: Arrivals = arrivals(part, result.basis)
    if arrived.transfer_us is None:
        return None
    known = arrived.transfer_us[~np.isnan(arrived.transfer_us)]
    return float(known.mean()) if len(known) else None


def _explanation(found: SlowLinks, excess_us: float, tax: Measure) -> Explanation:
    seen = [_rank_text(found, None, None)]
    if tax.value is not None:
        seen.append(
            f"nobody is late for good by work of its own: outside of the transfer ranks wait "
            f"{spoken_ratio(tax.value)} of the paid time"
        )
    return Explanation(
        phases=(PhaseExcess("collective", excess_us, 1.0),),
        hints=(
            Hint(
                "slow_links",
                "slow communication of that rank: its adapter or cable, or its host's processor",
                1.0,
                tuple(seen),
                (
                    "a probe reaches the two neighbours only: both of these links can be slow each "
                    "for a reason of its own",
                ),
                (
                    "errors, rate and congestion counters of its adapter, and the same probe with "
                    "the rank on another host",
                ),
            ),
        ),
    )


def _rank_text(found: SlowLinks, excess_us: float | None, step_us: float | None) -> str:
    rank = found.ranks[0]
    peers = " and ".join(
        f"{spoken_us(time_us)} to rank {a + b - rank}" for (a, b), time_us in found.links
    )
    text = (
        f"Rank {rank} is slow inside its collectives: in link probes its messages take {peers}, "
        f"those of the others {spoken_us(found.reference_us)}, in {found.slow_probes} of "
        f"{found.probes} probes."
    )
    if excess_us is not None and step_us:
        text += (
            f" It holds up all ranks alike, by up to {spoken_us(excess_us)} "
            f"({spoken_ratio(excess_us / step_us)} of the mean step)."
        )
    return text


def _link_text(found: SlowLinks) -> str:
    a, b = found.ranks
    return (
        f"The link between ranks {a} and {b} is slow: {spoken_us(found.own_us)} in link probes, "
        f"other links {spoken_us(found.reference_us)}, in {found.slow_probes} of {found.probes} "
        "probes; neither rank is slow on its other link."
    )
