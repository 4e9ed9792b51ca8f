"""Every SQL text, named and parameterised, and the engine that runs it."""

from steptax.app.queries.asked import Engine
from steptax.app.queries.engine import DuckEngine
from steptax.app.queries.opened import EngineName, open_engine
from steptax.app.queries.texts import QUERIES, Query, query

__all__ = ["QUERIES", "DuckEngine", "Engine", "EngineName", "Query", "open_engine", "query"]
