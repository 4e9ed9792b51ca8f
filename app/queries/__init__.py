"""Every SQL text, named and parameterised, and the engine that runs it."""

from steptax.app.queries.engine import DuckEngine
from steptax.app.queries.texts import QUERIES, Query, query

__all__ = ["QUERIES", "DuckEngine", "Query", "query"]
