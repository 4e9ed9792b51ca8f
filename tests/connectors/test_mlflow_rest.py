"""The tracking server's interface: pages, tries again, what goes wrong; and over a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from steptax.app.errors import InputError
from steptax.connectors.asking import TIMEOUT_S, TRIES
from steptax.connectors.trackers.mlflow_rest import MlflowServer, place_of

RUN = "0123456789abcdef0123456789abcdef"


@dataclass
class Answer:
    status_code: int
    content: bytes
    headers: dict[str, str] = field(default_factory=dict)


def good(**body: Any) -> Answer:
    return Answer(200, json.dumps(body).encode())


def value(step: int, key: str = "train/loss") -> dict[str, Any]:
    # Servers give 64-bit numbers as text.
    at_ms = 1_700_000_000_000 + 1000 * step
    return {"key": key, "value": 8 / (step + 1), "timestamp": str(at_ms), "step": str(step)}


def run_of(run_id: str = RUN) -> dict[str, Any]:
    info = {
        "run_id": run_id,
        "run_name": "n",
        "status": "FINISHED",
        "start_time": 1_699_999_990_000,
    }
    return {"info": info, "data": {"metrics": [value(9)]}}


class Script:
    """A transport that gives prepared answers and notes what it was asked."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.slept: list[float] = []

    def __call__(self, method: str, url: str, **given: Any) -> Answer:
        assert given["timeout"] == TIMEOUT_S
        self.asked.append((method, url, given["params"] or given["json"]))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def server(self) -> MlflowServer:
        return MlflowServer(self, sleep=self.slept.append)

    def runs(self, url: str = f"http://h:5000/#/experiments/1/runs/{RUN}") -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.server().runs(url)]


@pytest.mark.parametrize(
    ("url", "base", "run", "experiment"),
    [
        (f"http://h:5000/#/experiments/7/runs/{RUN}", "http://h:5000", RUN, "7"),
        ("http://h:5000/#/experiments/7", "http://h:5000", None, "7"),
        (f"https://h/mlflow/#/experiments/7/runs/{RUN}/artifacts", "https://h/mlflow", RUN, "7"),
        (f"https://h/ml/experiments/7/runs/{RUN}?o=12", "https://h", RUN, "7"),
        (f"http://h/api/2.0/mlflow/runs/get?run_id={RUN}", "http://h", RUN, None),
        ("http://user:secret@h:1?experiment_id=7", "http://h:1", None, "7"),
    ],
)
def test_addresses(url: str, base: str, run: str | None, experiment: str | None) -> None:
    found = place_of(url)
    assert (found.base, found.run_id, found.experiment_id) == (base, run, experiment)


def test_an_address_of_neither_is_refused_without_its_password() -> None:
    with pytest.raises(InputError, match="run or an experiment") as caught:
        place_of("http://user:secret@h:5000/")
    assert "secret" not in str(caught.value.where)


def test_all_pages_of_a_metric_are_read() -> None:
    script = Script(
        good(run=run_of()),
        good(metrics=[value(0), value(1)], next_page_token="t1"),
        good(metrics=[value(2)]),
    )
    [found] = script.runs()
    assert [m["step"] for m in found["metrics"]] == ["0", "1", "2"]
    assert script.asked[1][2]["metric_key"] == "train/loss"
    assert "page_token" not in script.asked[1][2]
    assert script.asked[2][2]["page_token"] == "t1"
    assert script.asked[2][1] == "http://h:5000/api/2.0/mlflow/metrics/get-history"


def test_an_experiment_gives_all_its_runs() -> None:
    script = Script(
        good(runs=[run_of("a")], next_page_token="t"),
        good(metrics=[value(0)]),
        good(runs=[run_of("b")]),
        good(metrics=[value(1)]),
    )
    names = [name for name, _ in script.server().runs("http://h/#/experiments/7")]
    assert names == ["a.json", "b.json"]
    assert script.asked[0][0] == "POST"
    assert script.asked[0][2]["experiment_ids"] == ["7"]


def test_a_busy_and_a_silent_server_are_asked_again() -> None:
    script = Script(
        Answer(503, b"", {"Retry-After": "3"}),
        ConnectionError("reset"),
        good(run={"info": {"run_id": RUN}, "data": {}}),
    )
    assert script.runs()[0]["metrics"] == []
    assert script.slept == [3, 1]


def test_it_gives_up_and_says_what_the_server_said() -> None:
    script = Script(*[Answer(500, b'{"message": "database is gone"}')] * TRIES)
    with pytest.raises(InputError, match=r"answers 500 \(database is gone\)"):
        script.runs()
    assert len(script.asked) == TRIES
    assert script.slept == [0.5, 1, 2, 4]


def test_what_is_not_there_is_asked_once() -> None:
    script = Script(Answer(404, b'{"message": "No run"}'))
    with pytest.raises(InputError, match=r"answers 404 \(No run\)") as caught:
        script.runs()
    assert "MLFLOW_TRACKING_TOKEN" in (caught.value.hint or "")
    assert len(script.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"<html>"),
        Answer(200, b"[]"),
        good(run=None),
        good(run={"info": {"run_id": "../../etc"}}),
    ],
)
def test_what_is_no_such_server(answer: Answer) -> None:
    with pytest.raises(InputError, match="expected the answer of an MLflow server"):
        Script(answer).runs()


def test_pages_that_repeat_themselves_end() -> None:
    pages = [good(metrics=[value(0)], next_page_token="same")] * 3
    with pytest.raises(InputError, match="again and again"):
        Script(good(run=run_of()), *pages).runs()


class _Handler(BaseHTTPRequestHandler):
    tokens: list[str | None] = []  # noqa: RUF012  # reset by the fixture

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = parse_qs(parts.query)
        self.tokens.append(self.headers.get("Authorization"))
        if parts.path.endswith("runs/get"):
            body: dict[str, Any] = {"run": run_of(asked["run_id"][0])}
        else:
            body = {"metrics": [value(step) for step in range(12)]}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    _Handler.tokens = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_run_of_a_server_is_ingested_once(
    address: str, steptax: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken")
    url = f"{address}/#/experiments/1/runs/{RUN}"
    done = steptax("ingest", "mlflow", url, "--world-size", 4)
    assert done["job_ids"] == [RUN]
    assert done["tables"]["printed_metrics"]["accepted"] == 12
    assert _Handler.tokens == ["Bearer t0ken"] * 2
    assert steptax("ingest", "mlflow", url, "--world-size", 4)["ingests"][0]["already"]
    learned = steptax("job", RUN, "--price", "3600", "--target-loss", "2")["learning"]
    # 4 devices at a dollar a second, from ten seconds before the first value on.
    assert learned["spent_usd"]["value"] == pytest.approx(4 * 21)
    assert learned["usd_to_target"]["value"] == pytest.approx(4 * 13)


def test_a_kind_that_is_not_read_from_an_address_says_so(steptax: Callable[..., Any]) -> None:
    error = steptax("ingest", "steps", "https://h/x.csv", fails=2)
    assert "not read from an address" in error["message"]
    assert error["where"] == "https://h/x.csv"
