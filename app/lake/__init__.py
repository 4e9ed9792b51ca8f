"""The store: append-only Parquet segments; the only place that knows files."""

from steptax.app.lake.lake import Lake
from steptax.app.lake.segments import Segment

__all__ = ["Lake", "Segment"]
