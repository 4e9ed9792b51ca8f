"""What a run is called whose folder says only which version of an experiment it is."""

from __future__ import annotations

import re
from pathlib import Path

_VERSION = re.compile(r"version_\d+")
#: Where Lightning puts the versions unless it is told where: the folder above says of what.
_ANY = ("lightning_logs", "tb_logs", "csv_logs")


def is_version(folder: Path) -> bool:
    """Whether ``folder`` is called as Lightning calls the versions of an experiment."""
    return _VERSION.fullmatch(folder.name) is not None


def version_name(folder: Path) -> str:
    """``expA/version_0``, or ``expA/lightning_logs/version_0`` for Lightning's own folder.

    Every experiment has a ``version_0``: alone it would make one job of all of them.
    """
    folder = folder.resolve()
    parts = [folder.name]
    for parent in folder.parents:
        if parent.name:
            parts.insert(0, parent.name)
        if parent.name not in _ANY:
            break
    return "/".join(parts)
