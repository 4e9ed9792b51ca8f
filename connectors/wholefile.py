"""Small files that are read at once."""

from __future__ import annotations

from pathlib import Path

from steptax.app.errors import InputError
from steptax.connectors.sources import blocks

#: Scalars of a million steps; more is no file of this kind.
WHOLE_BYTES = 256 << 20


def read_json_whole(path: Path) -> bytes:
    """All of ``path``, unpacked; InputError when it is longer than 256 MiB.

    What lies beyond the place where a packed file breaks off is not there: then the text is no
    JSON, and whoever reads it says so.
    """
    data = bytearray()
    for block in blocks(path):
        data += block.data
        if block.broken:
            data += b"\n" + block.broken[0].raw.encode()
        if len(data) > WHOLE_BYTES:
            raise InputError(
                f"is longer than {WHOLE_BYTES >> 20} MiB",
                where=str(path),
                hint="give the file of one run",
            )
    return bytes(data)
