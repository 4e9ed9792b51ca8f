"""The store: append-only Parquet segments; the only place that knows files."""

from pathlib import Path

from steptax.app.lake.bucket import url_of
from steptax.app.lake.lake import Lake
from steptax.app.lake.look import one_look
from steptax.app.lake.scoped import ScopedLake
from steptax.app.lake.segments import Segment

__all__ = ["Lake", "ScopedLake", "Segment", "lake_at", "one_look"]


def lake_at(place: Path | str, *, create: bool = False) -> Lake:
    """The lake in a folder, or at a URL such as ``s3://bucket/lake``; NotFoundError for none."""
    url = url_of(place)
    if url is None:
        return Lake(place, create=create)
    from steptax.app.lake.bucket_lake import BucketLake

    return BucketLake(url, create=create)
