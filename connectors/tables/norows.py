"""A batch that has rejects or notes only."""

from __future__ import annotations

import pyarrow as pa

from steptax.app.schema import table

_BY_THE_LAKE = ("source", "ingested_at_us")


def no_rows(name: str) -> pa.Table:
    """No rows of table ``name``, with the columns that a connector gives."""
    whole = table(name).arrow.empty_table()
    return whole.drop_columns(list(_BY_THE_LAKE))
