"""Whether a lake can be read, in a word: for who watches over the server, not for readers."""

from __future__ import annotations

from pathlib import Path

from steptax.app.errors import NotFoundError, SteptaxError
from steptax.app.lake import lake_at
from steptax.app.lake.bucket import url_of


def lake_state(place: Path) -> str:
    """``ok``, ``empty`` where there is no lake yet, else what is wrong with it."""
    is_folder = url_of(place) is None
    if is_folder and not place.exists():
        return "empty"
    try:
        lake_at(place).commits.all()
    except NotFoundError as error:
        # A folder that is there and is no lake is the wrong one.
        return error.kind if is_folder else "empty"
    except SteptaxError as error:
        return error.kind
    except OSError as error:
        return error.strerror or "cannot be read"
    return "ok"
