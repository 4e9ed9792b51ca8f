"""The one error of its own that the what-if engine has."""

from __future__ import annotations

from steptax.app.errors import InputError


class GraphError(InputError):
    """The operations of a trace do not form the dependency graph of the model.

    Per-rank times can still be told; what would change if an operation were faster cannot.
    """
