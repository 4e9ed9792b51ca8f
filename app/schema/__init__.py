"""The tables that everything is exchanged in: columns, units, keys and null rules."""

from steptax.app.schema.batch import Batch, Reject
from steptax.app.schema.table import Column, Table
from steptax.app.schema.tables import EVENT_KINDS, TABLES, table

__all__ = ["EVENT_KINDS", "TABLES", "Batch", "Column", "Reject", "Table", "table"]
