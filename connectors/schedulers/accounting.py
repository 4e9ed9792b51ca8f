"""Slurm's accounting as it is asked now: by the command ``sacct``, or over slurmrestd."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from steptax.app.errors import InputError
from steptax.connectors.asking import Answer, AskedServer, Transport, ask, shown
from steptax.connectors.schedulers.answers import errors_in
from steptax.connectors.wholefile import WHOLE_BYTES, whole_json

#: The accounting of a busy day takes minutes of a loaded database.
TIMEOUT_S = 300.0
#: Ids in one call: a command line has a limit, and so has an address.
IDS_AT_ONCE = 200
_FIELDS = (
    "JobID,Cluster,Partition,Account,User,State,Submit,Start,End,Elapsed,AllocTRES,NodeList,JobName"
)
_NAP_S = 0.05


class StoppedError(Exception):
    """Whoever waits for the accounting was asked to stop."""


class Accounting(Protocol):
    """Whom to ask. Both calls write the answer to ``into``; InputError where there is none."""

    kind: ClassVar[str]
    """The connector that reads the answers."""
    where: str
    """How people know it."""

    def window(self, start_us: int, end_us: int, into: Path) -> None:
        """Every run of a job that held or awaited devices at some time between the two."""

    def jobs(self, ids: Sequence[str], into: Path) -> None:
        """Every run of these jobs, at most ``IDS_AT_ONCE``, whenever it was."""


class SacctCommand:
    """Runs ``sacct``, without a shell, and never longer than ``timeout_s``.

    It is told to print times in UTC and with their offset, so that no hour comes twice; where
    ``zone`` is given, a wrapper that hides our environment from it prints them in that zone.
    """

    kind: ClassVar[str] = "sacct"

    def __init__(
        self,
        *,
        zone: str | None = None,
        program: str = "sacct",
        timeout_s: float = TIMEOUT_S,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.where = program
        self._zone = zone
        self._timeout_s = timeout_s
        self._stop = stop

    def window(self, start_us: int, end_us: int, into: Path) -> None:
        """As ``Accounting.window``."""
        self._run(["--starttime", self._moment(start_us), "--endtime", self._moment(end_us)], into)

    def jobs(self, ids: Sequence[str], into: Path) -> None:
        """As ``Accounting.jobs``: with ids and no start sacct looks at all times."""
        self._run(["--jobs", ",".join(ids)], into)

    def _moment(self, us: int) -> str:
        zone = UTC if self._zone is None else ZoneInfo(self._zone)
        return f"{datetime.fromtimestamp(us // 1_000_000, zone):%Y-%m-%dT%H:%M:%S}"

    def _run(self, asked: Sequence[str], into: Path) -> None:
        line = [
            self.where,
            *("--allusers", "--allocations", "--duplicates", "--parsable2"),
            *("--format", _FIELDS),
            *asked,
        ]
        environment = os.environ | {
            "TZ": self._zone or "UTC",
            "SLURM_TIME_FORMAT": "%Y-%m-%dT%H:%M:%S%z",
            "SLURM_BITSTR_LEN": "0",  # no list of array tasks is cut
            "LC_ALL": "C",
        }
        with into.open("wb") as out, tempfile.TemporaryFile() as said:
            try:
                # To files: pipes that a grandchild holds open would keep us waiting.
                process = subprocess.Popen(
                    line,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=said,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise InputError(
                    f"cannot be run: {error.strerror}",
                    where=self.where,
                    hint="run it where Slurm's client commands are, and have them on PATH; or "
                    "watch slurmrestd by its address",
                ) from None
            code = self._wait(process)
            said.seek(0)
            told = said.read(4000).decode("utf-8", "replace").strip()
        if code or "error:" in told:
            # Also with a code of 0: what an answer lacks must not pass for what is not there.
            raise InputError(
                f"fails with code {code}: {' '.join(told.split())[:300] or 'it says nothing'}",
                where=self.where,
                hint=f"try it yourself: {' '.join(line)}",
            )

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        until_s = time.monotonic() + self._timeout_s
        while (code := process.poll()) is None:
            if self._stop() or time.monotonic() > until_s:
                # A wrapper's children, too.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if self._stop():
                    raise StoppedError
                raise InputError(
                    f"has not ended after {self._timeout_s:g} s and was killed",
                    where=self.where,
                    hint="see whether slurmdbd answers: sacctmgr ping",
                )
            time.sleep(_NAP_S)
        return code


class SlurmServer(AskedServer):
    """Asks slurmrestd for what slurmdbd knows, in the newest version of its interface.

    https://slurm.schedmd.com/rest_api.html
    """

    kind: ClassVar[str] = "slurm-rest"
    _JOBS = re.compile(r"/slurmdb/v0\.0\.(\d+)/jobs/?")

    def __init__(self, transport: Transport, url: str, headers: Mapping[str, str]) -> None:
        super().__init__(transport)
        parts = urlsplit(url)
        self._base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.where = shown(self._base)
        self._headers = dict(headers)
        self._found: tuple[str, frozenset[str]] | None = None

    @classmethod
    def at(cls, url: str) -> SlurmServer:
        """Over ``requests``, authorised by SLURM_JWT, which ``scontrol token`` prints."""
        import requests

        names = {"X-SLURM-USER-TOKEN": "SLURM_JWT", "X-SLURM-USER-NAME": "SLURM_USER_NAME"}
        told = {header: os.environ.get(name) for header, name in names.items()}
        return cls(requests.request, url, {h: value for h, value in told.items() if value})

    def window(self, start_us: int, end_us: int, into: Path) -> None:
        """As ``Accounting.window``."""
        span = {"start_time": start_us // 1_000_000, "end_time": -(-end_us // 1_000_000)}
        self._jobs(span, into)

    def jobs(self, ids: Sequence[str], into: Path) -> None:
        """As ``Accounting.jobs``."""
        self._jobs({"step": ",".join(ids), "start_time": 1}, into)

    def _jobs(self, asked: dict[str, Any], into: Path) -> None:
        path, known = self._path()
        if "skip_steps" in known:
            asked["skip_steps"] = "true"
        content = self._get(path, asked)
        if len(content) > WHOLE_BYTES:
            raise InputError(
                f"answers more than {WHOLE_BYTES >> 20} MiB",
                where=self.where,
                hint="take less at once: begin later, with --from",
            )
        into.write_bytes(content)

    def _path(self) -> tuple[str, frozenset[str]]:
        """The newest path of jobs, and the names of what can be asked of it."""
        if self._found is None:
            try:
                paths = whole_json(self._get("/openapi/v3", {}).decode("utf-8", "replace"))["paths"]
                found = {p: int(m[1]) for p in paths if (m := self._JOBS.fullmatch(p))}
                path = max(found, key=found.__getitem__)
                can = paths[path].get("get", {}).get("parameters", [])
                self._found = path, frozenset(str(one.get("name")) for one in can)
            except (ValueError, KeyError, TypeError, AttributeError):
                raise InputError(
                    "does not say where the jobs of its accounting are",
                    where=f"{self.where}/openapi/v3",
                    hint="slurmrestd needs the plugin slurmdbd: slurmrestd -s slurmctld,slurmdbd",
                ) from None
        return self._found

    def _get(self, path: str, asked: Mapping[str, Any]) -> bytes:
        answer = ask(
            self._transport,
            "GET",
            self._base + path,
            said=_said,
            hint="check address and token: export SLURM_JWT=... as scontrol token prints it, and "
            "SLURM_USER_NAME where the server asks for a name",
            timeout_s=(5.0, TIMEOUT_S),
            sleep=self._sleep,
            params=dict(asked),
            headers=self._headers,
        )
        return bytes(answer.content)


def _said(answer: Answer) -> str:
    """What slurmrestd says of its errors."""
    try:
        told = errors_in(whole_json(bytes(answer.content).decode("utf-8", "replace")))
    except ValueError:
        return ""
    return f": {told}" if told else ""
