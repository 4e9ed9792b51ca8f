"""A job of which no steps are stored: the bill that its record alone gives."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from steptax.app.compute.measure import Measure
from steptax.app.metrics import check_metrics
from steptax.app.views.bill.view import bill_of, note_of, without_bill
from steptax.app.views.fleet.jobs import job_bills
from steptax.app.views.job.jobs import whole_hours
from steptax.app.views.models import Bill, Price
from steptax.app.views.pricing.given import dollars
from steptax.app.views.pricing.of_job import job_price
from steptax.app.views.workspace import Workspace

NO_CARD = "who is slow, and why, cannot be told without per-rank steps"


@dataclass(frozen=True)
class RecordView:
    """What accounting and events tell of a job."""

    job: dict[str, Any]
    bill: Bill
    """Without lines where the record gives none; the note says why."""
    metrics: dict[str, Measure]
    price: Price


def record_view(
    ws: Workspace, job_id: str, *, price: Decimal | None, price_note: str | None = None
) -> RecordView:
    """The bill of ``job_id`` as ``steptax ledger`` has it. Raises NotFoundError for no such job."""
    job = ws.job(job_id)
    cost = job_price(ws, job_id, price, price_note)
    price = cost.usd_per_gpu_hour
    (one,) = job_bills(ws, [job])
    if one.bill is None:
        bill = without_bill(one.reason)
    else:
        note = f"{note_of(one.bill, '')} {NO_CARD[0].upper()}{NO_CARD[1:]}."
        if one.undated:
            note += f" {one.undated[0].upper()}{one.undated[1:]}."
        bill = bill_of(one.bill, note, price)
    hours = whole_hours(one, None)
    found = {"gpu_hours": hours, "spend_usd": dollars(hours, cost), **bill.metrics}
    return RecordView(job, bill, check_metrics(found), cost)
