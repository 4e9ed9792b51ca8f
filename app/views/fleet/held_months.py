"""In which months jobs held their devices: one split for the ledger, the review and the fleet.

Time that is known is cut at the ends of months. Hours of which no record tells when they were held
lie in the month in which the job began or was submitted, else in the period that its source states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steptax.app.compute.bill.apportion import Unit, pieces
from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.bill.waterfall_groups import split_periods
from steptax.app.views.fleet.record_bills import JobBill
from steptax.app.views.fleet.records import Records
from steptax.app.views.fleet.stated_months import NO_MONTH, stated_month

#: Months, UTC, in which a job held devices, and its GPU-hours in each; None where not known.
Months = tuple[tuple[str, float | None], ...]


def months_held(
    jobs: Sequence[Mapping[str, Any]], bills: Sequence[JobBill], hours: Sequence[float | None]
) -> tuple[Months, ...]:
    """[N] the months of each job, by its record, its bill and the ``hours`` that are known of it.

    A job that held no devices for any time is in the month of which its record tells.
    """
    found: list[Months] = [
        ((stated_month(job) or NO_MONTH, own),) for job, own in zip(jobs, hours, strict=True)
    ]
    dated = [k for k, one in enumerate(bills) if one.span is not None]
    alone = [k for k in dated if bills[k].held is not None]
    place = {bills[k].job_id: k for k in alone}
    parts, groups = Records.of([bills[k] for k in alone]).cut(Unit.MONTH, "UTC")
    cut: dict[int, list[tuple[str, float | None]]] = {}
    names = [groups.names[code] for code in groups.code.tolist()]
    for job_id, month, us in zip(parts.job_ids, names, parts.gpu_us.tolist(), strict=True):
        cut.setdefault(place[job_id], []).append((month, us / GPU_US_PER_HOUR))
    for k in dated:
        bill = bills[k].made
        if bill is None or bill.timeline is None:
            continue
        months = pieces(*bill.timeline.span_us, Unit.MONTH)
        if len(months) == 1:  # nearly all of them
            cut[k] = [(months[0].period, hours[k])]
            continue
        cut[k] = [
            (str(part.labels.period), float(part.total_gpu_us) / GPU_US_PER_HOUR)
            for part in split_periods(bill, Unit.MONTH)
            if part.total_gpu_us
        ]
    for k, own in cut.items():
        if own:
            found[k] = tuple(own)
    return tuple(found)
