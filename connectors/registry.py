"""The connectors there are: a new one is one module and one line here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from steptax.app.errors import NotFoundError
from steptax.connectors.base import Connector
from steptax.connectors.jobs_table import JobsConnector
from steptax.connectors.ops import OpsConnector
from steptax.connectors.steps import StepsConnector

_ALL: tuple[Connector, ...] = (
    StepsConnector(),
    OpsConnector(),
    JobsConnector(),
)

CONNECTORS: Mapping[str, Connector] = MappingProxyType({c.kind: c for c in _ALL})
"""Connector by kind, in the order in which lists show them."""


def connector(kind: str) -> Connector:
    """The connector of ``kind``; NotFoundError names the kinds there are."""
    try:
        return CONNECTORS[kind]
    except KeyError:
        near = difflib.get_close_matches(kind, CONNECTORS, 1)
        raise NotFoundError(
            f"there is no connector {kind!r}" + (f"; is it {near[0]!r}?" if near else ""),
            where="KIND",
            hint=f"kinds are {', '.join(CONNECTORS)}",
        ) from None
