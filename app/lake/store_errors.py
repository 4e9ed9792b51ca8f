"""What an object store says when it refuses, as errors for people.

Its client translates some of the store's codes into errors of the operating system, among them a
bucket that is not there into one that means a missing object. So the code is looked for in the
answer of the store, which the client leaves in the chain of causes. The codes are those of Amazon
S3 (API Reference, "Error responses"), which other stores that speak S3 use too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from steptax.app.errors import DeliveryError, SteptaxError, UserError, disk_error

#: Codes that name a bucket which is not there. A client that asks for no body is told 404 alone,
#: for a missing object as well, so that is not among them.
_NO_BUCKET = frozenset(("NoSuchBucket", "InvalidBucketName"))
_EXPIRED = frozenset(("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"))
_UNKNOWN = frozenset(
    ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidClientTokenId")
)
_REGION = frozenset(
    (
        "301",
        "307",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "PermanentRedirect",
        "Redirect",
        "TemporaryRedirect",
    )
)
_FORBIDDEN = frozenset(("403", "AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden"))
_CLOCK = frozenset(("RequestTimeTooSkewed", "RequestExpired"))
#: Two wrote one object at the same moment: whoever asks again is told which of them was first.
_CONFLICT = frozenset(("409", "ConditionalRequestConflict", "OperationAborted"))
_BUSY = _CONFLICT | frozenset(
    (
        "500",
        "502",
        "503",
        "504",
        "InternalError",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
    )
)
#: Of the client's own errors, by the name of their type: no answer came.
_NO_CREDENTIALS = frozenset(
    (
        "CredentialRetrievalError",
        "NoAuthTokenError",
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "ConfigNotFound",
    )
)
_EXPIRED_TYPES = frozenset(
    ("SSOTokenLoadError", "TokenRetrievalError", "UnauthorizedSSOTokenError")
)
_CLIENTS = ("botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "adlfs", "azure", "ocifs")


@contextmanager
def told(url: str) -> Iterator[None]:
    """Raise what the store at ``url`` refuses as an error that says what was expected.

    UserError where it is for the person to mend, DeliveryError where the store is busy. What says
    that one object is not there, or is there already, is raised on: those who ask expect it. So
    are a full disk of this machine, a file of this machine that is not there, and faults of ours.
    """
    try:
        yield
    except Exception as error:  # every store has its own
        said = explained(error, url)
        if said is None:
            raise
        raise said from error


def explained(error: BaseException, url: str) -> SteptaxError | None:
    """``error`` of the client of the store at ``url`` in words; None where it is no refusal."""
    if isinstance(error, SteptaxError):
        return None
    chain = list(_chain(error))
    code, message = _answer(chain)
    bucket, place = _bucket_of(url), _endpoint()
    at = f"at {place}" if place else "at Amazon S3"
    is_s3 = url.startswith(("s3://", "s3a://"))
    if code in _NO_BUCKET:
        return UserError(
            f"there is no bucket {bucket} {at}: expected one that holds the lake, or is to hold it",
            where=url,
            hint=f"make it (aws s3 mb s3://{bucket}), or name another place with --lake or "
            "STEPTAX_LAKE; AWS_ENDPOINT_URL for a store that is not Amazon's",
        )
    if isinstance(error, FileNotFoundError | FileExistsError):
        return None
    if isinstance(error, OSError) and code is None:
        if disk_error(error) is not None or _is_of_this_machine(error):
            return None
    elif code is None and not any(_is_of_client(one) for one in chain):
        return None
    if not is_s3:
        return UserError(
            f"the store of bucket {bucket} refuses, or cannot be reached: {message}",
            where=url,
            hint="check the name of the bucket, the network, and what its client takes from the "
            "environment: credentials, their rights, a proxy",
        )
    types = {type(one).__name__ for one in chain}
    if code in _EXPIRED or types & _EXPIRED_TYPES:
        return UserError(
            f"the credentials for bucket {bucket} have expired: expected some that are valid now",
            where=url,
            hint="renew them (aws sso login, or a new AWS_SESSION_TOKEN beside its key) and start "
            "what runs with the old ones again",
        )
    if types & _NO_CREDENTIALS:
        return UserError(
            f"no credentials for bucket {bucket} were found: {message}",
            where=url,
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the "
            "machine a role",
        )
    if code in _UNKNOWN:
        return UserError(
            f"the store does not know the credentials for bucket {bucket}: {message}",
            where=url,
            hint="check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            + (f"; they are sent to {place} (AWS_ENDPOINT_URL)" if place else ""),
        )
    if code in _REGION:
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return UserError(
            f"bucket {bucket} is in another region than {region or 'the one that was asked'}: "
            f"{message}",
            where=url,
            hint=f"set AWS_DEFAULT_REGION to the bucket's (aws s3api head-bucket --bucket {bucket} "
            "tells it)",
        )
    if code in _CLOCK:
        return UserError(
            f"the store refuses the clock of this machine: {message}",
            where=url,
            hint="set the clock (timedatectl set-ntp true)",
        )
    if code in _FORBIDDEN or (code is None and isinstance(error, PermissionError)):
        return UserError(
            f"access to bucket {bucket} is forbidden: {message}",
            where=url,
            hint="these credentials need s3:ListBucket on the bucket and s3:GetObject, "
            "s3:PutObject and s3:DeleteObject on what is in it; to read, the first two",
        )
    if code in _BUSY:
        return DeliveryError(
            f"the store of bucket {bucket} is busy or out of order: {message}",
            where=url,
            hint="try again: what is stored is whole, and what was not committed is not seen",
        )
    if code is not None:
        return UserError(
            f"the store of bucket {bucket} refuses ({code}): {message}",
            where=url,
            hint="is AWS_ENDPOINT_URL a store that speaks S3, and may these credentials do that?",
        )
    return UserError(
        f"the store of bucket {bucket} cannot be reached {at}: {message}",
        where=url,
        hint="check the network, the name of the store and AWS_ENDPOINT_URL (for a store that is "
        "not Amazon's), AWS_DEFAULT_REGION, and the proxy",
    )


def is_conflict(error: BaseException) -> bool:
    """Whether the store wants to be asked again: another one wrote the object just then."""
    return _answer(list(_chain(error)))[0] in _CONFLICT


def _chain(error: BaseException) -> Iterator[BaseException]:
    """``error`` and what it came of, the newest first."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__


def _answer(chain: list[BaseException]) -> tuple[str | None, str]:
    """The store's code, None where it gave none, and what is said, in a line."""
    for one in chain:
        response: Any = getattr(one, "response", None)
        told_of = response.get("Error") if isinstance(response, dict) else None
        if isinstance(told_of, dict) and told_of.get("Code"):
            code = str(told_of["Code"])
            return code, _line(str(told_of.get("Message") or "") or f"its answer was {code}")
    return None, _line(str(chain[0]) or type(chain[0]).__name__)


def _line(text: str) -> str:
    return text.strip().split("\n")[0]


def _is_of_client(error: BaseException) -> bool:
    # An address that is none is a ValueError of the client's.
    return type(error).__module__.partition(".")[0] in _CLIENTS or (
        isinstance(error, ValueError) and "endpoint" in str(error).lower()
    )


def _is_of_this_machine(error: OSError) -> bool:
    """Whether a file of this machine is meant: what is said of objects has no name of a file."""
    return error.filename is not None


def _bucket_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


def _endpoint() -> str | None:
    """Where the environment says that the store is; None for Amazon's."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
