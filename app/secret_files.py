"""Reading a file that holds a secret: only one that nobody else can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from steptax.app.errors import UserError


def read_secret_file(path: Path) -> str:
    """The text of ``path``.

    UserError where it cannot be read, is no text, or others than its owner can read it. What root
    made for our group alone, as a mounted secret of root:steptax 0640, is one of ours.
    """
    try:
        found = path.stat()
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot be read: {error.strerror}", where=str(path), hint="name a file of yours"
        ) from None
    group_may = stat.S_IRGRP if found.st_uid != os.geteuid() else 0
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) & ~group_may:
        raise UserError(
            f"holds secrets and has mode {stat.S_IMODE(found.st_mode):04o}: others can read it",
            where=str(path),
            hint=f"chmod 600 {path}",
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError("is not UTF-8 text", where=str(path), hint="write it anew") from None
