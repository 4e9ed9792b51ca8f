"""The REST interface of an MLflow tracking server, as much of it as reading metrics needs.

Version 2.0 of https://mlflow.org/docs/latest/rest-api.html.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from steptax.app.errors import InputError
from steptax.connectors.asking import Answer, AskedServer, ask, shown

#: Values of a metric, and runs of an experiment, that one answer may hold.
PAGE_VALUES = 20_000
PAGE_RUNS = 1_000
#: An answer that makes no progress for so many pages has no end.
_PAGES = 100_000
_API = "/api/2.0/mlflow/"
_RUN = re.compile(r"/runs/(?P<id>[0-9A-Za-z_.-]+)")
_EXPERIMENT = re.compile(r"/experiments/(?P<id>[0-9A-Za-z_.-]+)")


@dataclass(frozen=True)
class Place:
    """What an address names: the server, and a run or an experiment of it."""

    base: str
    run_id: str | None
    experiment_id: str | None


def place_of(url: str) -> Place:
    """Server and run or experiment in ``url``; InputError when it names neither."""
    parts = urlsplit(url)
    asked = parse_qs(parts.query) | parse_qs(urlsplit(parts.fragment).query)
    path = f"{parts.path}#{parts.fragment}"
    run, experiment = _RUN.search(path), _EXPERIMENT.search(path)
    # What is asked for goes before the path: that of the API ends in /runs/get.
    run_id = next(iter(asked.get("run_id", ())), run["id"] if run else None)
    experiment_id = next(
        iter(asked.get("experiment_id", ())), experiment["id"] if experiment else None
    )
    if parts.scheme not in ("http", "https") or not parts.hostname or not (run_id or experiment_id):
        raise InputError(
            "expected the address of a run or an experiment",
            where=shown(url),
            hint="for example https://HOST/#/experiments/1/runs/ID, or https://HOST?run_id=ID",
        )
    # A server may live under a path; what belongs to its pages and its API is no part of it.
    own = re.split(r"/(?:api/2\.0|ajax-api/2\.0|ml|experiments|runs)(?:/|$)", parts.path)[0]
    host = parts.netloc.rpartition("@")[2]
    return Place(f"{parts.scheme}://{host}{own.rstrip('/')}", run_id, experiment_id)


class MlflowServer(AskedServer):
    """Asks a server, with timeouts and a few more tries where it is busy or silent."""

    def runs(self, url: str) -> Iterator[tuple[str, bytes]]:
        """Each run at ``url``: a file name, and the run with all values of its metrics as JSON.

        InputError where the server does not answer, or not as such a server does.
        """
        place = place_of(url)
        if place.run_id is not None:
            found = self._ask(place, "GET", "runs/get", {"run_id": place.run_id})
            runs: Iterator[Any] = iter([found.get("run")])
        else:
            query = {"experiment_ids": [place.experiment_id], "max_results": PAGE_RUNS}
            runs = self._pages(place, "POST", "runs/search", query, "runs")
        for run in runs:
            yield self._document(place, run)

    def _document(self, place: Place, run: Any) -> tuple[str, bytes]:
        info = run.get("info") if isinstance(run, dict) else None
        run_id = info.get("run_id") if isinstance(info, dict) else None
        if not isinstance(run_id, str) or not re.fullmatch(r"[\w.-]{1,200}", run_id):
            raise self._strange(place, "a run without an id")
        data = run.get("data")
        newest = data.get("metrics", []) if isinstance(data, dict) else []
        keys = [m["key"] for m in newest if isinstance(m, dict) and isinstance(m.get("key"), str)]
        values: list[Any] = []
        for key in dict.fromkeys(keys):
            query = {"run_id": run_id, "metric_key": key, "max_results": PAGE_VALUES}
            history = self._pages(place, "GET", "metrics/get-history", query, "metrics")
            values += ({"key": key, **v} if isinstance(v, dict) else v for v in history)
        # Python writes NaN as it is, and the reader knows it.
        body = json.dumps({"run": {"info": info}, "metrics": values}, sort_keys=True)
        return f"{run_id}.json", body.encode()

    def _pages(
        self, place: Place, method: str, what: str, query: dict[str, Any], name: str
    ) -> Iterator[Any]:
        token = None
        for _ in range(_PAGES):
            found = self._ask(place, method, what, query | ({"page_token": token} if token else {}))
            items = found.get(name, [])
            if not isinstance(items, list):
                raise self._strange(place, f"{name} that is no list")
            yield from items
            before, token = token, found.get("next_page_token")
            if not token:
                return
            if token == before:
                raise self._strange(place, "the same page again and again")
        raise self._strange(place, "pages without end")

    def _ask(self, place: Place, method: str, what: str, query: dict[str, Any]) -> dict[str, Any]:
        where = f"{place.base}{_API}{what}"
        answer = ask(
            self._transport,
            method,
            where,
            said=_message,
            hint="check address and id; MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, authorise",
            sleep=self._sleep,
            params=query if method == "GET" else None,
            json=query if method == "POST" else None,
            headers=self._headers,
            auth=self._user,
        )
        return self._read(place, answer)

    def _read(self, place: Place, answer: Answer) -> dict[str, Any]:
        try:
            found = json.loads(answer.content)
        except (ValueError, RecursionError):
            raise self._strange(place, "no JSON") from None
        if not isinstance(found, dict):
            raise self._strange(place, "no JSON object")
        return found

    @staticmethod
    def _strange(place: Place, found: str) -> InputError:
        return InputError(
            f"expected the answer of an MLflow server, found {found}",
            where=place.base,
            hint="check that the address is that of a tracking server",
        )


def _message(answer: Answer) -> str:
    """What the server says of the fault, in brackets."""
    try:
        found = json.loads(answer.content)
    except (ValueError, RecursionError):
        return ""
    said = found.get("message") if isinstance(found, dict) else None
    return f" ({said[:200]})" if isinstance(said, str) and said else ""
