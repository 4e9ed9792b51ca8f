"""What an installation is told from outside: environment variables named STEPTAX_*."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Environment of a process. There is no price unless somebody sets one."""

    model_config = SettingsConfigDict(env_prefix="STEPTAX_", extra="ignore")

    lake: Path = Field(default=Path("steptax-lake"), description="root of the lake")
    price_usd_per_gpu_hour: Decimal | None = Field(
        default=None, gt=0, description="list price that you set, for pages and commands"
    )
    price_note: str | None = Field(
        default=None, description="said beside the price, e.g. who set it and why"
    )
    bill_rules: Path | None = Field(
        default=None, description="TOML file: tags, resources and rates by which bills are divided"
    )
