"""Every error that Steptax raises on purpose.

SteptaxError
├── UserError          the person can fix it: wrong file, unit, name, flag (exit code 2)
│   ├── InputError     a file or a line of it cannot be read
│   └── NotFoundError  no such job, table, connector
├── DeliveryError      a message did not arrive; trying again may help (exit code 1)
└── IntegrityError     ours: a number that cannot be, a record that does not close (exit code 1)
"""

from __future__ import annotations

import errno
import os


def install_hint(extra: str) -> str:
    """How an optional part is installed: no index of packages has Steptax, a checkout does."""
    return f"in a checkout of Steptax: pip install '.[{extra}]'"


class SteptaxError(Exception):
    """Base of all. ``where`` names file, line and field; ``hint`` says what to do."""

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    @property
    def kind(self) -> str:
        """Stable name for ``--json``, e.g. ``InputError``."""
        return type(self).__name__

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} ({self.hint})" if self.hint else text


class UserError(SteptaxError):
    """The person can fix it."""


class InputError(UserError):
    """A file, a line or a field is not what was expected."""


class NotFoundError(UserError):
    """The named thing does not exist."""


class IntegrityError(SteptaxError):
    """A number that cannot be true, or a record that does not close."""


class DeliveryError(SteptaxError):
    """Somebody else's server did not take a message."""


#: What the system says where nothing more can be written, and what helps.
_DISK = {
    errno.ENOSPC: "free some space on that disk, or use another; nothing that is stored is hurt",
    errno.EDQUOT: "free some of the space that is yours there, or have it raised",
    errno.EROFS: "it can be read as it is; to write, mount it writable or name another folder",
}


def disk_error(error: OSError) -> UserError | None:
    """A disk that takes nothing more, as an error for people; None for any other reason.

    Libraries name no file, and put their own words around those of the system.
    """
    hint = _DISK.get(error.errno or 0)
    if hint is None:
        return None
    where = None if error.filename is None else str(error.filename)
    return UserError(f"cannot write: {os.strerror(error.errno or 0)}", where=where, hint=hint)
