"""What a line of a bill says, as digests that do not depend on how its file spells it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

#: What a charge is for. It stays the same when a later export of the month gives it another price,
#: end, tag or discount.
SUBJECT = (
    "billing_start_us",
    "charge_start_us",
    "currency",
    "resource_id",
    "sub_account_id",
    "sku_id",
    "service_name",
    "charge_category",
    "consumed_unit",
)
#: All that a line says, but for provider, account and invoice: an invoice gets its id late.
CONTENT = (
    *SUBJECT,
    "billing_end_us",
    "charge_end_us",
    "billed_cost",
    "effective_cost",
    "list_cost",
    "contracted_cost",
    "pricing_category",
    "commitment_status",
    "reservation_status",
    "consumed_quantity",
    "tags",
)


def digests(rows: pa.Table, names: Sequence[str] = CONTENT) -> list[str]:
    """One digest per row of ``rows`` (charges as they are stored) over the columns ``names``.

    Stored values have one spelling: decimals of 12 places, UTC microseconds, sorted tags. A column
    that is not there counts as unknown.
    """
    if not rows.num_rows:
        return []
    columns = [
        pc.fill_null(pc.cast(rows[name], pa.string()), "\x00")
        if name in rows.column_names
        else pa.scalar("\x00")
        for name in names
    ]
    columns[0] = (
        columns[0]
        if not isinstance(columns[0], pa.Scalar)
        else pa.array(["\x00"] * rows.num_rows, pa.string())
    )
    joined = pc.binary_join_element_wise(*columns, "\x1f").to_pylist()
    return [hashlib.blake2b(text.encode(), digest_size=12).hexdigest() for text in joined]
