"""CRC-32C (Castagnoli) as TFRecord files use it, over many records at once.

Polynomial and reflection: RFC 3720, section 12.1 and appendix B.4. The mask is that of LevelDB and
TensorFlow: a checksum of data that holds checksums would otherwise be weak.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78
#: Fewer records than this of one length are quicker one by one.
_FEW = 8


def _table() -> list[int]:
    out = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        out.append(crc)
    return out


_TABLE = _table()
_ARRAY = np.array(_TABLE, dtype=np.uint32)


def crc32c(data: bytes) -> int:
    """The checksum of ``data``."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """``crc`` as it is stored."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def masked_rows(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Stored checksums of the rows of ``rows`` [N, L]."""
    crc = np.full(len(rows), 0xFFFFFFFF, dtype=np.uint32)
    for place in range(rows.shape[1]):
        crc = _ARRAY[(crc ^ rows[:, place]) & 0xFF] ^ (crc >> np.uint32(8))
    crc ^= np.uint32(0xFFFFFFFF)
    turned = (crc >> np.uint32(15)) | (crc << np.uint32(17))
    return turned + np.uint32(0xA282EAD8)


def masked_many(records: Sequence[bytes]) -> list[int]:
    """Stored checksums of ``records``."""
    of_length: dict[int, list[int]] = {}
    for place, record in enumerate(records):
        of_length.setdefault(len(record), []).append(place)
    out = [0] * len(records)
    for length, places in of_length.items():
        if len(places) < _FEW or not length:
            for place in places:
                out[place] = masked(crc32c(records[place]))
            continue
        joined = np.frombuffer(b"".join(records[place] for place in places), np.uint8)
        found = masked_rows(joined.reshape(len(places), length))
        for place, crc in zip(places, found.tolist(), strict=True):
            out[place] = crc
    return out
