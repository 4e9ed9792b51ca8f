"""Jobs whose steps could not be analysed: told with the reason, while all others go on."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from steptax.app.errors import SteptaxError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unread:
    """Why a job could not be analysed."""

    reason: str


def unread(job_id: str, error: Exception) -> Unread:
    """The reason in words; where it is a fault of this program, its log tells where."""
    if isinstance(error, SteptaxError):
        return Unread(str(error))
    _log.info("job %s could not be analysed", job_id, exc_info=error)
    return Unread(f"its analysis failed: {type(error).__name__}: {error}")
