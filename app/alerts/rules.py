"""Rules and channels as a person writes them down: one TOML file, every fault named at once."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from steptax.app.compute.alerting import Limit
from steptax.app.errors import InputError, NotFoundError, UserError
from steptax.app.metrics import METRICS

#: The file in a lake that holds rules and channels.
RULES_FILE = "alerts.toml"

#: What is not a metric of the registry, and can be watched too.
SILENT_S = "silent_s"
STOPPED_RANKS = "stopped_ranks"
BURN_FAST, BURN_SLOW = "burn_fast_x", "burn_slow_x"
#: Of a scope that an objective is set for, and not of a job.
BURNS = {
    BURN_FAST: "burn rate of an error budget over the newest hour",
    BURN_SLOW: "burn rate of an error budget over the newest 6 hours",
}
READINGS = {
    SILENT_S: "seconds since the newest sign of life of a running job",
    STOPPED_RANKS: "ranks of a running job that fell silent",
    **BURNS,
}
#: How far the clear threshold lies from the other where none is given, as a share of it.
_MARGIN_SHARE = 0.1

EXAMPLE = """[[rule]]
name = "straggler tax"
metric = "straggler_tax_ratio"
above = 0.10
clear = 0.08
for_s = 300
channels = ["ops"]

[[rule]]
name = "the error budget burns"  # steptax budget set --goodput-slo sets it
metric = "burn_fast_x"           # without above or below: at the rate that is an alarm
scopes = "all"

[channel.ops]
kind = "slack"
url_env = "OPS_SLACK_URL"
"""


#: One mail address, in one line.
Address = Annotated[str, Field(pattern=r"^[^\s@]+@[^\s@]+$")]
#: Part of a header of each message.
ChannelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_Strict):
    """One rule; ``jobs`` and ``scopes`` are patterns as a shell has them.

    A rule about a burn rate is about scopes (``all``, ``team:red``), every other one about jobs. It
    may leave out its threshold: then it is the rate from which on the fleet page calls it an alarm.
    """

    name: Annotated[str, Field(min_length=1, max_length=100)]
    metric: str
    above: float | None = None
    below: float | None = None
    clear: float | None = None
    for_s: Annotated[float, Field(ge=0, le=30 * 86400)] = 60.0
    clear_for_s: Annotated[float, Field(ge=0, le=30 * 86400)] = 60.0
    jobs: str = "*"
    scopes: str = "*"
    severity: Literal["info", "warning", "critical"] = "warning"
    channels: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Rule:
        given = (self.above is not None) + (self.below is not None)
        if given == 2 or (not given and not self.is_of_scopes):
            raise ValueError("expected either above or below")
        if self.metric not in METRICS and self.metric not in READINGS:
            raise ValueError(f"there is no metric {self.metric!r}")
        if self.is_of_scopes and self.jobs != "*":
            raise ValueError("jobs: an error budget is that of scopes: write scopes")
        if not self.is_of_scopes and self.scopes != "*":
            raise ValueError("scopes: this metric is that of jobs: write jobs")
        if not given and self.clear is not None:
            raise ValueError("clear: expected above or below with it")
        try:
            _ = self.limit(1.0)
        except UserError as error:
            raise ValueError(f"clear: {error.message}") from None
        return self

    @property
    def is_of_scopes(self) -> bool:
        """Whether it is about scopes with an objective, and not about jobs."""
        return self.metric in BURNS

    def limit(self, usual: float | None = None) -> Limit:
        """Thresholds and durations; ``usual`` is the threshold of a rule that gives none."""
        threshold = self.above if self.above is not None else self.below
        is_above = self.below is None
        threshold = usual if threshold is None else threshold
        assert threshold is not None
        clear = self.clear if self.clear is not None else self._usual_clear(threshold, is_above)
        return Limit(threshold, is_above, clear, self.for_s, self.clear_for_s)

    def _usual_clear(self, threshold: float, is_above: bool) -> float:
        margin = _MARGIN_SHARE * abs(threshold)
        if is_above:
            return threshold - margin
        # A share cannot rise above 1: half way there at most.
        is_share = self.metric in METRICS and METRICS[self.metric].unit == "ratio"
        return min(threshold + margin, (1 + threshold) / 2) if is_share else threshold + margin

    def watches(self, name: str, *, is_scope: bool = False) -> bool:
        """Whether the rule is about this job, or about this scope."""
        pattern = self.scopes if is_scope else self.jobs
        return is_scope == self.is_of_scopes and fnmatchcase(name, pattern)


class Webhook(_Strict):
    """A URL that gets JSON: ours (``webhook``), or what Slack understands (``slack``)."""

    kind: Literal["webhook", "slack"]
    url: str | None = None
    url_env: str | None = None
    url_file: Path | None = None
    token_env: str | None = None
    """Bearer token, from the environment."""

    @model_validator(mode="after")
    def _check(self) -> Webhook:
        if sum(v is not None for v in (self.url, self.url_env, self.url_file)) != 1:
            raise ValueError("expected one of url, url_env, url_file")
        if self.kind == "slack" and self.url is not None:
            raise ValueError("the URL of Slack is a secret: give url_env or url_file")
        return self


class Email(_Strict):
    """Mail by SMTP; user and password come from the environment."""

    kind: Literal["email"]
    host: str
    port: Annotated[int, Field(gt=0, lt=65536)] = 587
    sender: Address
    to: Annotated[tuple[Address, ...], Field(min_length=1)]
    starttls: bool = True
    user_env: str | None = None
    password_env: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Email:
        if (self.user_env is None) != (self.password_env is None):
            raise ValueError("expected user_env and password_env together")
        return self


class _File(_Strict):
    rule: tuple[Rule, ...] = ()
    channel: Mapping[ChannelName, Annotated[Webhook | Email, Field(discriminator="kind")]] = Field(
        default_factory=dict
    )


@dataclass(frozen=True)
class Rules:
    """What one file says."""

    rules: tuple[Rule, ...]
    channels: Mapping[str, Webhook | Email] = field(default_factory=dict)

    def channels_of(self, rule: Rule) -> Sequence[str]:
        """Who is told; all channels where the rule names none."""
        return rule.channels or tuple(self.channels)


def read_rules(path: Path) -> Rules:
    """The rules of a file.

    Raises:
        NotFoundError: there is no such file.
        InputError: names the place of each fault, what was expected and found.
    """
    where = str(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(
            "there are no rules", where=where, hint=f"write them, for example:\n{EXAMPLE}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is no TOML: {error}", where=where, hint="mend that line") from None
    try:
        found = _File.model_validate(data)
    except ValidationError as error:
        faults = "; ".join(_fault(e, data) for e in error.errors())
        metrics = ", ".join([*READINGS, *METRICS])
        hint = f"metrics are {metrics}" if "no metric" in faults else "mend what is named"
        raise InputError(faults, where=where, hint=hint) from None
    _check_names(found, where)
    return Rules(found.rule, found.channel)


def _fault(error: Any, data: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in error["loc"])
    message = error["msg"].removeprefix("Value error, ")
    if len(error["loc"]) > 1 and error["loc"][0] == "rule":
        rule = data["rule"][error["loc"][1]]
        named = rule.get("name") if isinstance(rule, dict) else None
        place += f" ({named})" if named else ""
    return f"{place}: {message[:1].lower()}{message[1:]}"


def _check_names(found: _File, where: str) -> None:
    names = [rule.name for rule in found.rule]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(
            f"two rules are called {twice[0]!r}", where=where, hint="give each its own name"
        )
    for rule in found.rule:
        for channel in rule.channels:
            if channel not in found.channel:
                known = ", ".join(found.channel) or "none"
                raise InputError(
                    f"rule {rule.name!r} names the channel {channel!r}, which is not there",
                    where=where,
                    hint=f"channels are {known}",
                )


def secret(env: str | None, file: Path | None, what: str) -> str:
    """A secret from the environment or a file that only its owner can read; never logged.

    Raises:
        InputError: it is not there, or others can read the file.
    """
    if env is not None:
        value = os.environ.get(env, "").strip()
        if not value:
            raise InputError(f"the variable {env} is empty", where=what, hint=f"export {env}=...")
        return value
    assert file is not None
    try:
        mode = file.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InputError(
                "others can read this secret", where=str(file), hint=f"chmod 600 {file}"
            )
        return file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise InputError("is no UTF-8 text", where=str(file), hint="write it anew") from None
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", where=str(file), hint="check the path"
        ) from None
