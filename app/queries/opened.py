"""Which engine answers: DuckDB in process, or Apache Spark."""

from __future__ import annotations

from typing import Literal

from steptax.app.errors import UserError
from steptax.app.lake import Lake
from steptax.app.queries.asked import Engine
from steptax.app.queries.engine import DuckEngine

EngineName = Literal["duckdb", "spark"]


def open_engine(lake: Lake, name: EngineName = "duckdb", master: str | None = None) -> Engine:
    """The engine ``name`` on ``lake``; ``master`` is Spark's, none: as Spark is configured.

    UserError where Spark is missing or cannot start, or where DuckDB is given a master.
    """
    if name == "spark":
        from steptax.app.queries.spark import SparkEngine
        from steptax.app.queries.spark_start import spark_session

        return SparkEngine(lake, spark_session(master))
    if master is not None:
        raise UserError(
            "only Spark has a master", where="--master", hint=f"--engine spark --master {master}"
        )
    return DuckEngine(lake)
