"""Who may see what: from the claims of a login to a role and the teams whose jobs are seen.

The rules stand in the file that also holds what the login needs, and nobody but its owner may read
that file:

    [auth]                      # read by Streamlit's login
    redirect_uri = "https://steptax.example/oauth2callback"
    server_metadata_url = "https://login.example/.well-known/openid-configuration"
    client_id = "steptax"
    client_secret = "..."
    cookie_secret = "..."       # 32 random characters or more

    [access]
    session_hours = 8           # after that the login is asked for again

    [[access.grant]]
    claim = "groups"            # a claim of the identity token ...
    value = "vision-leads"      # ... that is or holds this
    role = "engineer"
    teams = ["vision"]          # "*" is every team, and all that is nobody's

Whom no grant names sees nothing.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

from steptax.app.errors import UserError
from steptax.app.secret_files import read_secret_file

logger = logging.getLogger("steptax.access")

EVERY_TEAM = "*"
SESSION_HOURS = 8.0
#: Clocks of two machines may differ by so much.
CLOCK_SKEW_S = 60.0
MIN_COOKIE_SECRET = 32
_AUTH_KEYS = ("redirect_uri", "server_metadata_url", "client_id", "client_secret", "cookie_secret")


class Role(IntEnum):
    """What one may do with the jobs that one sees; each may do what those before it may."""

    VIEWER = 1
    """Read pages and files."""
    ENGINEER = 2
    """Also set budgets of the own teams."""
    ADMIN = 3
    """Also what is of all teams: sources, rejected rows, budgets of all."""


class AccessDeniedError(UserError):
    """The person is known and may see nothing, or not this."""


class NotLoggedInError(AccessDeniedError):
    """Nobody is logged in, or the login is too old."""


@dataclass(frozen=True)
class Access:
    """What one person may see and do. ``teams`` None: every team, and what is nobody's."""

    user: str
    role: Role
    teams: frozenset[str] | None
    identity: str = ""
    """Issuer and subject: what no two people share, and what never changes (OIDC Core 2)."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is kept back."""
        return self.teams is None

    def may_manage(self) -> bool:
        """Whether sources, rejected rows and alerts of all are shown."""
        return self.role is Role.ADMIN and self.is_whole

    def check_budget(self, scope: str) -> None:
        """AccessDeniedError unless a budget of ``scope`` may be set: ``all``, ``team:NAME``, ..."""
        if self.may_manage():
            return
        team = scope.removeprefix("team:") if scope.startswith("team:") else None
        own = self.is_whole or team in (self.teams or ())
        if self.role < Role.ENGINEER or team is None or not own:
            raise AccessDeniedError(
                f"setting a budget of {scope} is not yours to do",
                where=self.user,
                hint="an engineer may set budgets of the own teams, an admin all of them",
            )


#: Without a login, on this machine: whoever reaches the pages may do what the process may.
ANYONE = Access("anyone", Role.ADMIN, None)
#: Without a login, and reached by others: whoever reaches the pages may read them.
ANY_READER = Access("anyone", Role.VIEWER, None)


@dataclass(frozen=True)
class Grant:
    """One line of the rules: who has the claim gets the role for the teams."""

    claim: str
    value: str
    role: Role
    teams: frozenset[str] | None


@dataclass(frozen=True)
class AccessRules:
    """The rules of an installation."""

    grants: tuple[Grant, ...]
    session_hours: float

    def access_of(self, claims: Mapping[str, Any], *, now_s: float) -> Access:
        """What the person with these claims may see and do.

        ``claims`` are those of the identity token, whose signature the login has checked.
        NotLoggedInError where there is no login or it is too old, AccessDeniedError where no grant
        fits.
        """
        if claims.get("is_logged_in") is not True or not claims.get("sub"):
            raise NotLoggedInError("nobody is logged in")
        issued_s = claims.get("iat")
        if isinstance(issued_s, bool) or not isinstance(issued_s, int | float):
            raise NotLoggedInError("the login does not say when it was made")
        if not now_s - self.session_hours * 3600 < issued_s < now_s + CLOCK_SKEW_S:
            raise NotLoggedInError(f"the login is older than {self.session_hours:g} hours")
        user = str(claims.get("email") or claims["sub"])
        identity = f"{claims.get('iss')} {claims['sub']}"
        found = [grant for grant in self.grants if _fits(grant, claims)]
        if not found:
            raise AccessDeniedError(
                "you are logged in, and no rule gives you a role",
                where=user,
                hint="ask whoever runs Steptax for a role and a team",
            )
        # A role holds for all teams that one sees: of several the least, so that none grows by
        # being combined with another.
        role = min(grant.role for grant in found)
        whole = [grant for grant in found if grant.teams is None]
        if whole:
            return Access(user, max(grant.role for grant in whole), None, identity)
        teams = frozenset[str]().union(*(grant.teams or () for grant in found))
        return Access(user, role, teams, identity)


def _fits(grant: Grant, claims: Mapping[str, Any]) -> bool:
    told = claims.get(grant.claim)
    if grant.claim == "email" and claims.get("email_verified") is not True:
        return False  # anybody may write any address into a profile
    return grant.value in told if isinstance(told, list) else told == grant.value


class LiveRules:
    """The rules of a file, read anew whenever it changes: one answer for pages and their files.

    A grant that is taken away is gone with the next request, and one that is added is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[object, AccessRules] | None = None
        self._told: object = None

    def now(self) -> AccessRules:
        """The rules as they are; AccessDeniedError while they cannot be read."""
        stamp = self._stamp()
        known = self._read
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            rules = read_rules(self._path)
        except UserError as error:
            if self._told != stamp:
                self._told = stamp
                logger.error("nobody is let in until the rules can be read: %s", error)
            # What is wrong with them is not for whoever asks.
            raise AccessDeniedError(
                "the rules of who may see what cannot be read, so nobody sees anything",
                hint="whoever runs this server finds the reason in its log",
            ) from None
        self._read, self._told = (stamp, rules), None
        return rules

    def _stamp(self) -> object:
        """Differs when the file may say something else, or may be read by others."""
        try:
            found = self._path.stat()
        except OSError as error:
            return error.errno
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@cache
def live_rules(path: Path) -> LiveRules:
    """The rules of ``path``, shared by all who ask for them in this process."""
    return LiveRules(path)


def read_rules(path: Path) -> AccessRules:
    """The rules of a file.

    UserError where it cannot be read, others than its owner may read it, or something is missing;
    no message holds a value of the file.
    """
    body = read_secret_toml(path)
    auth = body.get("auth")
    if not isinstance(auth, dict):
        raise _wrong(path, "has no [auth]", f"it needs {', '.join(_AUTH_KEYS)}")
    lacks = [key for key in _AUTH_KEYS if not isinstance(auth.get(key), str) or not auth[key]]
    if lacks:
        raise _wrong(path, f"lacks {', '.join(lacks)} in [auth]", "each is a text")
    if len(auth["cookie_secret"]) < MIN_COOKIE_SECRET:
        raise _wrong(
            path,
            f"has a cookie_secret of fewer than {MIN_COOKIE_SECRET} characters",
            'make one: python3 -c "import secrets; print(secrets.token_urlsafe(48))"',
        )
    if not auth["redirect_uri"].endswith("/oauth2callback"):
        raise _wrong(path, "has a redirect_uri that does not end in /oauth2callback", "")
    access = body.get("access", {})
    hours = access.get("session_hours", SESSION_HOURS) if isinstance(access, dict) else None
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 < hours <= 720:
        raise _wrong(path, "has a session_hours that is not above 0 and at most 720", "usual: 8")
    grants = access.get("grant", [])
    if not isinstance(grants, list) or not grants:
        raise _wrong(path, "has no [[access.grant]]", "without one nobody sees anything")
    return AccessRules(tuple(_grant(path, k, one) for k, one in enumerate(grants, 1)), float(hours))


def _grant(path: Path, number: int, one: Any) -> Grant:
    place = f"grant {number}"
    if not isinstance(one, dict) or set(one) != {"claim", "value", "role", "teams"}:
        raise _wrong(path, f"{place}: expected claim, value, role and teams", "")
    if not all(isinstance(one[key], str) and one[key] for key in ("claim", "value")):
        raise _wrong(path, f"{place}: claim and value are texts", "")
    names = [role.name.lower() for role in Role]
    if one["role"] not in names:
        raise _wrong(path, f"{place}: expected a role of {', '.join(names)}", "")
    teams = one["teams"]
    if not isinstance(teams, list) or not teams or not all(isinstance(t, str) for t in teams):
        raise _wrong(path, f"{place}: teams is a list of names", 'or ["*"] for every team')
    role = Role[one["role"].upper()]
    whole = EVERY_TEAM in teams
    if role is Role.ADMIN and not whole:
        raise _wrong(path, f"{place}: an admin is one of every team", 'teams = ["*"]')
    return Grant(one["claim"], one["value"], role, None if whole else frozenset(teams))


def read_secret_toml(path: Path) -> dict[str, Any]:
    """A TOML file with secrets in it; UserError where others than its owner may read it."""
    try:
        return tomllib.loads(read_secret_file(path))
    except tomllib.TOMLDecodeError as error:
        # The message tells line and column, and of the text one character at most.
        raise _wrong(path, f"is no TOML: {error}", "write it as TOML") from None


def _wrong(path: Path, what: str, hint: str) -> UserError:
    return UserError(what, where=str(path), hint=hint or "docs/operation.md has an example")
