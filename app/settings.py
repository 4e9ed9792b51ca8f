"""What an installation is told from outside: environment variables named STEPTAX_*."""

from __future__ import annotations

import os
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from steptax.app.errors import UserError


class Settings(BaseSettings):
    """Environment of a process. There is no price unless somebody sets one."""

    model_config = SettingsConfigDict(env_prefix="STEPTAX_", extra="ignore")

    lake: Path = Field(default=Path("steptax-lake"), description="root of the lake")
    price_usd_per_gpu_hour: Decimal | None = Field(
        default=None, gt=0, description="price per GPU-hour, for pages and commands"
    )
    price_note: str | None = Field(
        default=None, description="said beside the price, e.g. who set it and why"
    )
    access: Path | None = Field(
        default=None, description="file with the login and who may see what; none: no login"
    )
    anyone_may_read: bool = Field(
        default=False, description="without a login: who reads may change nothing, being anybody"
    )
    allow_hosts: str = Field(
        default="", description="further names of the page server, between commas: of its proxy"
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="log lines of the servers: text, or one JSON object a line"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="warning", description="least serious lines that are written"
    )
    engine: Literal["duckdb", "spark"] = Field(
        default="duckdb", description="what runs the queries: DuckDB in process, or Apache Spark"
    )
    spark_master: str | None = Field(
        default=None, description="master of Spark; none: as Spark itself is configured"
    )
    bill_rules: Path | None = Field(
        default=None, description="TOML file: tags, resources and rates by which bills are divided"
    )

    def __init__(self, **values: Any) -> None:
        """Read the environment; raises UserError that names the variable which cannot be used."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = f"STEPTAX_{'_'.join(map(str, first['loc'])).upper()}"
            raise UserError(
                f"{first['msg']}, found {str(first['input'])[:80]!r}",
                where=f"the environment, {name}",
                hint=f"set it to another value, or unset {name}",
            ) from None

    @property
    def lake_place(self) -> str:
        """Where the lake is, as people write it."""
        from steptax.app.lake.bucket import place_name  # takes a while, for one that is asked

        return place_name(self.lake)


def current_settings() -> Settings:
    """What the environment says now; parsed anew only where it says something else."""
    told = ((name.upper(), value) for name, value in os.environ.items())
    return _parsed(tuple(sorted(pair for pair in told if pair[0].startswith("STEPTAX_"))))


@lru_cache(maxsize=4)
def _parsed(told: tuple[tuple[str, str], ...]) -> Settings:
    return Settings()
