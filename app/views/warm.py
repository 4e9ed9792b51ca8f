"""What the pages about all jobs rest on, made before somebody asks for it."""

from __future__ import annotations

import logging

from steptax.app.errors import SteptaxError
from steptax.app.views.fleet.facts import fleet_facts
from steptax.app.views.fleet.places import repeat_offenders
from steptax.app.views.review.base import review_base
from steptax.app.views.workspace import Workspace

logger = logging.getLogger("steptax.warm")


def warm(ws: Workspace) -> bool:
    """Work out what all jobs come to, for this process and for what is stored beside the lake.

    False, and a word in the log, where the lake cannot be read: whoever opens a page is told why.
    """
    try:
        review_base(ws)
        repeat_offenders(ws, fleet_facts(ws))
    except (SteptaxError, OSError) as error:
        logger.warning("what all jobs come to cannot be worked out ahead: %s", error)
        return False
    return True
