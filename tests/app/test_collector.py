"""The collector in one process: what it takes, what it refuses, what it stores, and how often."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.collect.beats import Beats, read_beat
from steptax.app.collect.commits import CommitStore
from steptax.app.collect.committer import Committer
from steptax.app.collect.intake import BODY_BYTES, Intake, read_batch
from steptax.app.collect.marks import Mark, read_marks, write_marks
from steptax.app.collect.server import tls_context
from steptax.app.collect.service import Service, read_tokens
from steptax.app.errors import IntegrityError, UserError
from steptax.app.lake import Lake
from steptax.app.lake.compact import compact
from steptax.connectors.recorder.batch import Header, Piece, encode_batch
from steptax.connectors.recorder.columns import TABLES
from steptax.connectors.recorder.over_http import HttpTransport
from steptax.connectors.recorder.parquet import steps_encoder
from steptax.connectors.recorder.target import Secret
from tests.patience import PATIENCE_S, until

TOKEN = "correct-horse"
STREAM = "a" * 32


def row(**values: Any) -> dict[str, Any]:
    same = {"job_id": "j", "attempt": 0, "rank": 0, "source": "recorder", "ingested_at_us": 1}
    return {**same, "step": 0, "duration_us": 10, **values}


def lines(table: str, rows: list[dict[str, Any]]) -> bytes:
    names = [column.name for column in TABLES[table]]
    full = [{**dict.fromkeys(names), **r} for r in rows]
    return b"".join(orjson.dumps({n: r[n] for n in r}) + b"\n" for r in full)


def segment(
    rows: list[dict[str, Any]], table: str = "steps", job_id: str = "j", rank: int = 0, **names: Any
) -> tuple[Piece, bytes]:
    data = names.pop("data", None) or lines(table, rows)
    count = names.pop("count", len(rows))
    suffix = names.pop("suffix", "jsonl")
    name = f"live-{1:017d}-0-0-{count}-{os.urandom(4).hex()}.{suffix}"
    return Piece(table, job_id, rank, 0, name, count, 0, 0, len(data)), data


def batch(parts: list[tuple[Piece, bytes]], seq: int = 1, stream: str = STREAM) -> bytes:
    header = Header(stream, seq, "node", 1, tuple(piece for piece, _ in parts))
    return encode_batch(header, [data for _, data in parts])


def steps_of(lake: Path, job_id: str = "j") -> list[tuple[int, int]]:
    rows = Lake(lake).read("steps", job_id)
    return sorted(zip(rows["rank"].to_pylist(), rows["step"].to_pylist(), strict=True))


# -- reading a batch ----------------------------------------------------------------------------


def test_segments_of_many_ranks_and_tables_become_rows_of_the_schema() -> None:
    parts = [segment([row(rank=r, step=s) for s in range(3)], rank=r) for r in range(4)]
    event = {k: v for k, v in row(kind="eval", start_us=5).items() if k in _names("events")}
    parts.append(segment([event], "events"))
    intake = read_batch(batch(parts))
    assert intake.count == 13
    assert intake.rejects == intake.refused == []
    assert {key: sum(t.num_rows for t in found) for key, found in intake.rows.items()} == {
        ("steps", "j"): 12,
        ("events", "j"): 1,
    }


def _names(table: str) -> set[str]:
    return {column.name for column in TABLES[table]}


def test_parquet_of_a_recorder_is_taken_too() -> None:
    columns = {name: [value] for name, value in row().items()}
    data = steps_encoder()(columns, 1)
    intake = read_batch(batch([segment([row()], data=data, suffix="parquet")]))
    assert (intake.count, intake.refused) == (1, [])


@pytest.mark.parametrize(
    ("bad", "reason", "field"),
    [
        (segment([row(step="7")]), "line 1, step: expected a whole number of 64 bits", "step"),
        (segment([row(), row(step=1.5)]), "line 2, step: expected a whole number", "step"),
        (segment([row(step=2**63)]), "line 1, step: expected a whole number", "step"),
        (segment([row(rank=2**31)]), "rank: expected a whole number of 32 bits", "rank"),
        (segment([row(rank=-1)]), "rank: expected no negative value", "rank"),
        (
            segment([row(start_us=10**9 * 10**9)]),
            "start_us: expected a time before the year 10000",
            "start_us",
        ),
        (segment([row(duration_us=2**62)]), "duration_us: expected a time before", "duration_us"),
        (segment([row(source=7)]), "source: expected text, found 7", "source"),
        (segment([row(loss="x")]), "loss: expected a number", "loss"),
        (segment([row(duration_us=None)]), "duration_us: expected a value", "duration_us"),
        (segment([row(job_id="other")]), "job_id: expected 'j' in each row", "job_id"),
        (segment([row(evil=1)]), "there is no column 'evil'", "evil"),
        (segment([row()], count=2), "expected 2 rows by the name, found 1", None),
        (segment([row()], data=b"not json\n"), "line 1: expected an object of JSON", None),
        (segment([row()], data=b"[1]\n"), "line 1: expected an object of JSON", None),
        (segment([row()], data=lines("steps", [row()])[:-1]), "every line to end", None),
        (segment([row()], data=b"PAR1 no", suffix="parquet"), "expected Parquet", None),
    ],
)
def test_a_segment_that_is_wrong_is_refused_with_its_reason_and_the_others_are_taken(
    bad: tuple[Piece, bytes], reason: str, field: str | None
) -> None:
    good = segment([row(rank=5)], rank=5)
    intake = read_batch(batch([good, bad]))
    assert intake.count == 1
    [(place, why)] = intake.refused
    assert place == 1
    [reject] = intake.rejects
    assert reason in why
    assert why in reject.reason
    assert reject.field == field
    assert reject.raw


def test_a_job_id_that_no_folder_can_have_is_refused() -> None:
    job_id = "ü" * 100
    [(_, why)] = read_batch(batch([segment([row(job_id=job_id)], job_id=job_id)])).refused
    assert "too long" in why


# -- storing ------------------------------------------------------------------------------------


def intake_of(seq: int, stream: str = STREAM, rank: int = 0) -> Intake:
    return read_batch(batch([segment([row(rank=rank, step=seq)], rank=rank)], seq, stream))


def test_many_batches_become_one_segment_and_a_repeat_none(tmp_path: Path) -> None:
    lake = Lake(tmp_path, create=True)
    store = CommitStore(lake)
    intakes = [intake_of(1, f"{n:032x}", n) for n in range(100)]
    assert store.commit(intakes) == 100
    assert len(lake.segments("steps", "j")) == 1
    assert store.commit([*intakes, intake_of(2, f"{5:032x}", 5)]) == 1
    assert store.commit([intake_of(3, STREAM), intake_of(3, STREAM)]) == 1
    store.close()
    again = CommitStore(lake)
    assert again.commit(intakes) == 0
    assert lake.read("steps", "j").num_rows == 102
    again.close()


def test_a_batch_that_comes_late_is_stored_once_and_what_never_came_is_no_repeat(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path, create=True)
    store = CommitStore(lake)
    assert store.commit([intake_of(5)]) == 1
    assert [store.is_stored(STREAM, seq) for seq in range(1, 7)] == [*[False] * 4, True, False]
    assert store.commit([intake_of(2)]) == 1
    store.close()
    again = CommitStore(lake)
    assert [again.is_stored(STREAM, seq) for seq in range(1, 7)] == [
        False, True, False, False, True, False
    ]  # fmt: skip
    assert again.commit([intake_of(seq) for seq in (4, 5, 1, 2, 3, 4)]) == 3
    assert again.commit([intake_of(seq) for seq in range(1, 6)]) == 0
    assert orjson.loads((tmp_path / "collect" / "state.json").read_bytes())["holes"] == {}
    again.close()
    assert [step for _, step in steps_of(tmp_path)] == [1, 2, 3, 4, 5]


@given(st.lists(st.integers(1, 30), max_size=60))
def test_a_mark_knows_exactly_what_came(numbers: list[int]) -> None:
    mark, came = Mark(), set[int]()
    for seq in numbers:
        assert mark.holds(seq) == (seq in came)
        if not mark.holds(seq):
            mark = mark.with_batch(seq, 7)
        came.add(seq)
        assert [mark.holds(n) for n in range(1, 32)] == [n in came for n in range(1, 32)]
        assert read_marks(orjson.loads(orjson.dumps(write_marks({"s": mark})))) == {"s": mark}


def test_holes_that_are_remembered_are_bounded() -> None:
    mark = Mark()
    for seq in range(2, 2_002, 2):
        mark = mark.with_batch(seq, 7)
    assert len(mark.holes) == 256
    assert not mark.holds(1_999)
    assert mark.holds(1)


def test_the_state_of_an_older_collector_is_read(tmp_path: Path) -> None:
    lake = Lake(tmp_path, create=True)
    CommitStore(lake).close()
    state = {"marks": {STREAM: [4, int(time.time()) // 86_400]}, "moves": []}
    (tmp_path / "collect" / "state.json").write_bytes(orjson.dumps(state))
    store = CommitStore(lake)
    assert store.commit([intake_of(seq) for seq in (1, 4, 5)]) == 1
    store.close()


def test_one_collector_per_lake(tmp_path: Path) -> None:
    lake = Lake(tmp_path, create=True)
    first = CommitStore(lake)
    with pytest.raises(UserError, match="another collector"):
        CommitStore(lake)
    first.close()
    CommitStore(lake).close()


def test_a_state_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    lake = Lake(tmp_path, create=True)
    CommitStore(lake).close()
    (tmp_path / "collect" / "state.json").write_text("{")
    with pytest.raises(IntegrityError, match="state cannot be read"):
        CommitStore(lake)


def test_a_stream_that_fell_silent_is_forgotten_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path, create=True)
    store = CommitStore(lake)
    store.commit([intake_of(4, "b" * 32)])
    now_s = time.time() + 61 * 86_400
    monkeypatch.setattr(time, "time", lambda: now_s)
    store.commit([intake_of(1)])
    assert not store.is_stored("b" * 32, 4)
    assert store.is_stored(STREAM, 1)
    assert len(orjson.loads((tmp_path / "collect" / "state.json").read_bytes())["marks"]) == 1
    store.close()


def test_a_full_disk_stores_nothing_and_the_repeat_is_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path, create=True)
    store = CommitStore(lake)
    calls = 0
    while True:
        calls += 1
        left = [calls]
        sync = os.fsync

        def full(handle: int, left: list[int] = left, sync: Callable[[int], None] = sync) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise OSError(28, "No space left on device")
            sync(handle)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            try:
                store.commit([intake_of(calls)])
                break
            except OSError:
                pass
        assert store.commit([intake_of(calls)]) in (0, 1)
        assert [step for _, step in steps_of(tmp_path)] == list(range(1, calls + 1)), calls
    assert calls > 4
    store.close()


def in_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked child; returns its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_collector_that_is_killed_at_any_moment_loses_and_doubles_nothing(tmp_path: Path) -> None:
    moment, codes = 0, []
    while not codes or codes[-1] != 0:
        moment += 1
        root = tmp_path / str(moment)
        lake = Lake(root, create=True)
        first = CommitStore(lake)
        first.commit([intake_of(1)])
        first.close()

        def work(lake: Lake = lake, moment: int = moment) -> None:
            left = moment

            def dying(call: Callable[..., Any]) -> Callable[..., Any]:
                def called(*arguments: Any, **keywords: Any) -> Any:
                    nonlocal left
                    left -= 1
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return call(*arguments, **keywords)

                return called

            store = CommitStore(lake)
            for name in ("rename", "fsync", "unlink"):
                setattr(os, name, dying(getattr(os, name)))
            Path.rename = dying(Path.rename)  # type: ignore[method-assign]
            store.commit([intake_of(2), intake_of(1, "b" * 32, 1)])

        codes.append(in_child(work))
        # The sender did not hear of it and sends again; before, no reader sees a part of a file.
        assert len(steps_of(root)) in (1, 3)
        store = CommitStore(lake)
        assert store.commit([intake_of(2), intake_of(1, "b" * 32, 1)]) in (0, 2)
        assert steps_of(root) == [(0, 1), (0, 2), (1, 1)], moment
        assert not list(root.rglob("*.collected"))
        store.close()
    assert set(codes[:-1]) == {-signal.SIGKILL}
    assert moment > 6


def test_what_is_collected_is_compacted_like_the_rest(tmp_path: Path) -> None:
    lake = Lake(tmp_path, create=True)
    store = CommitStore(lake)
    for seq in range(1, 13):
        store.commit([intake_of(seq)])
    assert len(lake.segments("steps", "j")) == 12
    assert compact(lake, grace_s=0).merged_segments == 12
    assert len(lake.segments("steps", "j")) == 1
    store.close()
    again = CommitStore(lake)  # the last commit's file is gone: that is not a loss
    assert again.commit([intake_of(12)]) == 0
    again.close()
    assert [step for _, step in steps_of(tmp_path)] == list(range(1, 13))


def test_when_too_much_waits_nothing_more_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steptax.app.collect.committer.WAITING_BYTES", 3_000)
    store = CommitStore(Lake(tmp_path, create=True))
    committer = Committer(store)  # not started: nothing is stored
    tickets = [committer.submit(intake_of(n)) for n in range(1, 20)]
    taken = [ticket for ticket in tickets if ticket is not None]
    assert 0 < len(taken) < 19
    assert committer.counts.requests_put_off == 19 - len(taken)
    assert committer.waiting_bytes <= 3_000
    committer.start()
    committer.close()
    assert all(ticket.done.is_set() and ticket.error is None for ticket in taken)
    assert len(steps_of(tmp_path)) == len(taken)
    store.close()


def test_a_batch_that_cannot_be_stored_keeps_out_no_other(tmp_path: Path) -> None:
    store = CommitStore(Lake(tmp_path, create=True))
    committer = Committer(store)
    poisoned = intake_of(1, "b" * 32)
    poisoned.rows = {("steps", "other"): []}
    tickets = [committer.submit(i) for i in (intake_of(1), poisoned, intake_of(1, "c" * 32, 2))]
    committer.start()
    committer.close()
    found = [(t.error is None, t.is_refused) for t in tickets if t is not None]
    assert found == [(True, False), (False, True), (True, False)]
    assert steps_of(tmp_path) == [(0, 1), (2, 1)]
    store.close()


# -- heartbeats ---------------------------------------------------------------------------------


def beat(rank: int, ts_us: int, job_id: str = "j", **more: Any) -> tuple[str, dict[str, Any]]:
    same = {"rank": rank, "ts_us": ts_us, "state": "running", "rows_written": 1, "rows_dropped": 0}
    return job_id, {**same, "job_id": job_id, **more}


def test_the_newest_heartbeat_of_each_rank_is_in_the_lake_and_outlives_the_collector(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path, create=True)
    for found in ([beat(1, 10), beat(0, 5)], [beat(1, 9), beat(2, 3)]):
        beats = Beats(tmp_path)
        beats.start()
        beats.take(found)
        beats.close()
    assert [(b["rank"], b["ts_us"]) for b in lake.heartbeats("j")] == [(0, 5), (1, 10), (2, 3)]
    assert lake.live_job_ids() == ["j"]
    # A rank that has moved to a shared folder: the newer one holds, whichever file it is in.
    (tmp_path / "live" / "job=j" / "rank-000001.json").write_text(json.dumps(beat(1, 99)[1]))
    assert [b["ts_us"] for b in lake.heartbeats("j")] == [5, 99, 3]


def test_the_first_heartbeat_of_a_job_is_written_at_once_and_the_next_ones_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steptax.app.collect.beats.WRITE_S", 3_600.0)
    lake = Lake(tmp_path, create=True)
    beats = Beats(tmp_path)
    beats.start()
    beats.take([beat(0, 5)])
    until(lambda: lake.heartbeats("j"), "the first heartbeat")
    beats.take([beat(0, 6), beat(1, 6)])
    assert [b["ts_us"] for b in lake.heartbeats("j")] == [5]
    beats.close()
    assert [b["ts_us"] for b in lake.heartbeats("j")] == [6, 6]


def test_a_clock_that_was_ahead_silences_no_rank(tmp_path: Path) -> None:
    lake = Lake(tmp_path, create=True)
    now_us = time.time_ns() // 1000
    beats = Beats(tmp_path)
    beats.start()
    beats.take([beat(0, now_us + 86_400_000_000), beat(1, now_us + 5_000_000)])
    beats.take([beat(0, now_us), beat(1, now_us)])
    beats.close()
    # A few seconds ahead are what clocks differ by: the newer one holds.
    assert [b["ts_us"] for b in lake.heartbeats("j")] == [now_us, now_us + 5_000_000]


def test_a_last_heartbeat_that_the_disk_did_not_take_is_written_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path, create=True)
    beats = Beats(tmp_path)
    beats.take([beat(0, 10, state="closed")])

    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        beats._write()
    assert lake.heartbeats("j") == []
    beats._write()
    assert [b["state"] for b in lake.heartbeats("j")] == ["closed"]


@pytest.mark.parametrize("text", ["", "5", "[1]", '[{"rank": 1}]', '[{"rank": "x", "ts_us": "y"}]'])
def test_a_collector_goes_on_where_its_own_heartbeats_were_damaged(
    tmp_path: Path, text: str
) -> None:
    lake = Lake(tmp_path, create=True)
    path = tmp_path / "live" / "job=j" / "beats-collector.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    beats = Beats(tmp_path)
    beats.start()
    beats.take([beat(1, 10)])
    beats.close()
    assert [(b["rank"], b["ts_us"]) for b in lake.heartbeats("j")] == [(1, 10)]


@pytest.mark.parametrize("more", [{"host": 5}, {"step": "one"}, {"phase": "compute"}])
def test_a_heartbeat_that_no_page_could_show_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(more)) + "|step"):
        read_beat({**beat(1, 10)[1], **more})


# -- over HTTP ----------------------------------------------------------------------------------


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    yield from running(
        Service(Lake(tmp_path / "lake", create=True), "127.0.0.1", 0, tokens=[TOKEN])
    )


def running(service: Service) -> Iterator[Service]:
    ready = threading.Event()
    thread = threading.Thread(target=service.serve, args=(ready.set,))
    thread.start()
    ready.wait()
    try:
        yield service
    finally:
        service.stop()
        thread.join()


def ask(
    service: Service,
    method: str,
    path: str,
    body: bytes | None = None,
    token: str | None = TOKEN,
    **headers: str,
) -> tuple[int, dict[str, Any], dict[str, str]]:
    connection = http.client.HTTPConnection(
        "127.0.0.1", service.server.server_port, timeout=PATIENCE_S
    )
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        named["Authorization"] = f"Bearer {token}"
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    return answer.status, found, dict(answer.getheaders())


def test_a_batch_is_stored_when_it_is_acknowledged_and_once(
    service: Service, tmp_path: Path
) -> None:
    body = batch([segment([row(step=n) for n in range(4)])])
    status, said, _ = ask(service, "POST", "/v1/batches", body)
    assert (status, said["stored"], said["already"]) == (200, 4, False)
    assert len(steps_of(tmp_path / "lake")) == 4
    status, said, _ = ask(service, "POST", "/v1/batches", body)
    assert (status, said["stored"], said["already"]) == (200, 0, True)
    assert len(steps_of(tmp_path / "lake")) == 4
    counts = ask(service, "GET", "/v1/status")[1]["data"]
    assert (counts["batches"], counts["batches_repeated"], counts["rows"]) == (1, 1, 4)


def test_senders_at_the_same_time_share_a_commit(service: Service, tmp_path: Path) -> None:
    def send(n: int) -> None:
        body = batch([segment([row(rank=n)], rank=n)], 1, f"{n:032x}")
        assert ask(service, "POST", "/v1/batches", body)[0] == 200

    threads = [threading.Thread(target=send, args=(n,)) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps_of(tmp_path / "lake") == [(n, 0) for n in range(40)]
    assert len(list((tmp_path / "lake" / "tables" / "steps").rglob("live-*"))) < 10


def rejects_of(lake: Path) -> list[str]:
    """Reasons that are kept; those of whole requests are stored a moment after the answer."""
    found = until(lambda: Lake(lake).read("rejects")["reason"].to_pylist(), "a reject")
    return [str(reason) for reason in found]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"not a batch", 400, "header"),
        (gzip.compress(b"{}\n"), 400, "format"),
        (gzip.compress(bytes(80 * 2**20)), 400, "more than 67,108,864 bytes"),
        (batch([segment([row(step="x")])]), 422, "step"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason_that_is_kept(
    body: bytes, status: int, reason: str, service: Service, tmp_path: Path
) -> None:
    found, said, _ = ask(service, "POST", "/v1/batches", body)
    assert found == status
    assert reason in said["error"]
    assert reason in rejects_of(tmp_path / "lake")[0]
    assert Lake(tmp_path / "lake").read("steps", "j").num_rows == 0


def test_rejects_that_are_kept_are_bounded(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steptax.app.collect.committer.KEPT_AN_HOUR", 2)
    for _ in range(5):
        assert ask(service, "POST", "/v1/batches", b"x")[0] == 400
    ask(service, "POST", "/v1/batches", batch([segment([row()])]))
    assert len(rejects_of(tmp_path / "lake")) == 2
    assert ask(service, "GET", "/v1/status")[1]["data"]["requests_refused"] == 5


def test_a_refused_segment_is_named_and_kept_and_the_others_are_stored(
    service: Service, tmp_path: Path
) -> None:
    body = batch([segment([row()]), segment([row(step="x")], rank=1)])
    status, said, _ = ask(service, "POST", "/v1/batches", body)
    assert (status, said["stored"], [r["piece"] for r in said["rejected"]]) == (200, 1, [1])
    assert ask(service, "POST", "/v1/batches", body)[1]["rejected"] == said["rejected"]
    [reason] = rejects_of(tmp_path / "lake")
    assert "of rank 1" in reason


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "ü"])
def test_without_the_token_nothing_is_taken_or_told(
    token: str | None, service: Service, tmp_path: Path
) -> None:
    sent = None if token is None else token.encode("utf-8").decode("latin-1")
    body = batch([segment([row()])])
    for method, path, content in (
        ("POST", "/v1/batches", body),
        ("POST", "/v1/beats", b'{"beats": []}'),
        ("GET", "/v1/status", None),
    ):
        status, said, headers = ask(service, method, path, content, sent)
        assert status == 401
        assert headers["WWW-Authenticate"] == "Bearer"
        assert TOKEN not in json.dumps(said)
    assert not (tmp_path / "lake" / "tables").exists()
    assert ask(service, "GET", "/health", token=None)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8501"},  # any page, of this machine too
        {"Referer": "http://evil.example/page"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Host": "evil.example"},  # a name that was made to mean this machine
        {"Host": ""},
    ],
)
def test_without_tokens_no_page_in_a_browser_can_send(
    headers: dict[str, str], tmp_path: Path
) -> None:
    body = batch([segment([row()])])
    for service in running(
        Service(Lake(tmp_path / "lake", create=True), "127.0.0.1", 0, tokens=[])
    ):
        for method, path, content in (
            ("POST", "/v1/batches", body),
            ("POST", "/v1/beats", b'{"beats": []}'),
            ("GET", "/v1/status", None),
        ):
            status, said, _ = ask(service, method, path, content, None, **headers)
            assert (status, said["ok"]) == (403, False)
        assert steps_of(tmp_path / "lake") == []
        port = service.server.server_port
        for own in ({}, {"Host": f"localhost:{port}"}, {"Host": f"[::1]:{port}"}):
            assert ask(service, "POST", "/v1/batches", body, None, **own)[0] == 200
        assert len(steps_of(tmp_path / "lake")) == 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Length": str(BODY_BYTES + 1)}, 413),
        ({"Content_Length": "-1"}, 411),
        ({"Transfer_Encoding": "chunked"}, 411),
        ({"Content_Encoding": "br", "Content_Length": "0"}, 415),
    ],
)
def test_bodies_that_are_too_large_or_odd_are_not_read(
    headers: dict[str, str], status: int, service: Service
) -> None:
    assert ask(service, "POST", "/v1/batches", None, **headers)[0] == status


@pytest.mark.parametrize("token", [TOKEN, "wrong"])
def test_a_length_that_no_number_holds_is_answered(token: str, service: Service) -> None:
    headers = {"Content_Length": "9" * 5_000}
    status, said, _ = ask(service, "POST", "/v1/batches", None, token, **headers)
    assert (status, said["ok"]) == (413 if token == TOKEN else 401, False)


def test_a_batch_without_a_number_is_refused_and_not_taken_for_stored(
    service: Service, tmp_path: Path
) -> None:
    status, said, _ = ask(service, "POST", "/v1/batches", batch([segment([row()])], seq=0))
    assert (status, said["ok"]) == (400, False)
    assert "seq: expected a whole number in 1.." in said["error"]
    [reason] = rejects_of(tmp_path / "lake")
    assert "seq" in reason
    assert Lake(tmp_path / "lake").read("rejects")["source"].to_pylist() == ["collect:127.0.0.1"]


def test_a_heartbeat_that_is_none_silences_no_other(service: Service) -> None:
    good, odd = beat(0, 10)[1], beat(1, 10, state="odd")[1]
    body = orjson.dumps({"beats": [odd, good]})
    status, said, _ = ask(service, "POST", "/v1/beats", body)
    reason = "state: expected running or closed"
    assert (status, said) == (
        200,
        {"ok": True, "taken": 1, "refused": [{"beat": 0, "reason": reason}]},
    )
    status, said, _ = ask(service, "POST", "/v1/beats", orjson.dumps({"beats": [odd]}))
    assert (status, said["ok"]) == (400, False)
    assert reason in said["error"]
    told = ask(service, "GET", "/v1/status")[1]["data"]
    assert (told["ranks_heard"], told["beats_refused"]) == (1, 2)


def test_other_paths_are_not_there(service: Service) -> None:
    assert ask(service, "GET", "/")[0] == 404
    assert ask(service, "POST", "/v1/batches/../x", b"")[0] == 404


def test_a_lake_that_takes_nothing_asks_for_patience(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def full(handle: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fsync", full)
        status, said, headers = ask(service, "POST", "/v1/batches", batch([segment([row()])]))
    assert (status, headers["Retry-After"]) == (503, "2")
    assert "No space left" in said["error"]
    transport = HttpTransport(service.url, Secret(TOKEN))
    answer = transport.send(batch([segment([row()])], 2), is_first=True)
    assert answer.kind == "done"
    transport.close()


def test_the_senders_side_understands_each_answer(service: Service, tmp_path: Path) -> None:
    transport = HttpTransport(service.url + "/", Secret(TOKEN))
    assert transport.send(batch([segment([row()])]), is_first=True).kind == "done"
    partly = batch([segment([row(step=1)]), segment([row(step="x")])], 2)
    answer = transport.send(partly, is_first=True)
    assert (answer.kind, [place for place, _ in answer.lost]) == ("done", [1])
    refused = transport.send(b"nonsense", is_first=True)
    assert refused.kind == "refused"
    assert "HTTP 400: " in str(refused.reason)
    _, found = beat(3, 7)
    assert transport.send_beats("s", [found]).kind == "done"
    assert transport.send_beats("s", [{**found, "rank": "x"}]).kind == "refused"
    transport.close()
    wrong = HttpTransport(service.url, Secret("wrong-token"))
    answer = wrong.send(batch([segment([row()])], 3), is_first=True)
    assert answer.kind == "retry"
    assert str(answer.reason).startswith("HTTP 401")
    assert "wrong-token" not in str(answer)
    elsewhere = HttpTransport(service.url + "/elsewhere", Secret(TOKEN))
    assert elsewhere.send(b"x", is_first=True).kind == "retry"
    for each in (wrong, elsewhere):
        each.close()


def test_who_is_slow_to_shake_hands_holds_up_nobody(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 2 "
        "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1",
        shell=True,
        check=True,
        capture_output=True,
    )
    lake = Lake(tmp_path / "lake", create=True)
    service = Service(lake, "127.0.0.1", 0, tokens=[TOKEN], tls=tls_context(certificate, key))
    for found in running(service):
        assert found.url.startswith("https://")
        silent = http.client.HTTPConnection("127.0.0.1", found.server.server_port)
        silent.connect()
        unknown = HttpTransport(found.url, Secret(TOKEN))
        answer = unknown.send(batch([segment([row()])]), is_first=True)
        assert answer.kind == "retry"
        assert "CERTIFICATE_VERIFY_FAILED" in str(answer.reason)
        known = HttpTransport(found.url, Secret(TOKEN))
        known._tls = ssl.create_default_context(cafile=str(certificate))
        assert known.send(batch([segment([row()])]), is_first=True).kind == "done"
        known.close()
        silent.close()
    assert len(steps_of(tmp_path / "lake")) == 1


def test_a_collector_merges_what_it_stored_by_itself(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    service = Service(lake, "127.0.0.1", 0, tokens=[TOKEN], compact_s=0.01)
    reader = Lake(tmp_path / "lake")

    def names() -> list[str]:
        return [s.path.name for s in reader.segments("steps", "j")]

    for found in running(service):
        for seq in range(1, 10):
            body = batch([segment([row(step=seq)])], seq)
            assert ask(found, "POST", "/v1/batches", body)[0] == 200
        for _ in range(6_000):
            if any(name.startswith("part-") for name in names()):
                break
            time.sleep(0.01)
        assert len(names()) < 8
        assert steps_of(tmp_path / "lake") == [(0, seq) for seq in range(1, 10)]


# -- the command --------------------------------------------------------------------------------


def test_it_does_not_listen_beyond_this_machine_without_a_token(
    steptax: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("STEPTAX_TOKEN", raising=False)
    error = steptax("collect", "--host", "0.0.0.0", "--port", "0", fails=2)
    assert "anyone" in error["message"]
    (tmp_path / "token").write_text("# none\n\n")
    error = steptax("collect", "--token-file", tmp_path / "token", fails=2)
    assert "others can read it" in error["message"]
    (tmp_path / "token").chmod(0o600)
    error = steptax("collect", "--token-file", tmp_path / "token", fails=2)
    assert "expected a token" in error["message"]
    error = steptax("collect", "--tls-key", tmp_path / "token", fails=2)
    assert error["where"] == "--tls-key"
    error = steptax("collect", "--tls-cert", tmp_path / "token", fails=2)
    assert "cannot be used" in error["message"]


def test_tokens_can_be_changed_without_a_gap(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("# old\none\n two \n")
    (tmp_path / "token").chmod(0o600)
    assert read_tokens(tmp_path / "token") == ["one", "two"]


def test_forward_says_what_is_wrong_with_its_destination(
    steptax: Callable[..., Any], tmp_path: Path
) -> None:
    assert "folder" in steptax("forward", tmp_path, fails=2)["message"]
    error = steptax("forward", "http://user:hunter2@host", fails=2)
    assert "hunter2" not in json.dumps(error)


@pytest.mark.parametrize("token", ["two words", "größe", "a\tb"])
@pytest.mark.parametrize("command", [["collect"], ["forward", "http://127.0.0.1:1", "--once"]])
def test_a_token_that_no_header_carries_is_refused_at_the_start(
    token: str,
    command: list[str],
    tmp_path: Path,
    steptax: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STEPTAX_TOKEN", token)
    where = ["--spool", tmp_path / "s"] if command[0] == "forward" else ["--port", "0"]
    if command[0] == "collect":  # it would go on for ever
        monkeypatch.setattr(Service, "serve", lambda self, ready: pytest.fail("it listens"))
    said = steptax(*command, *where, fails=2)
    assert "printable ASCII" in said["message"]
    assert said["where"] == "the environment, STEPTAX_TOKEN"
    assert token not in str(said)


def test_a_polite_kill_stores_what_waits(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "steptax.app.cli", "collect", "--port", "0", "--json"]
    process = subprocess.Popen(
        [*command, "--lake", str(tmp_path / "lake")],
        stdout=subprocess.PIPE,
        env={k: v for k, v in os.environ.items() if k != "STEPTAX_TOKEN"},
    )
    assert process.stdout is not None
    text = b""
    while not text.rstrip().endswith(b"]\n}"):
        line = process.stdout.readline()
        assert line, text
        text += line
    url = json.loads(text)["data"]["url"]
    transport = HttpTransport(url, Secret(None))
    assert transport.send(batch([segment([row()])]), is_first=True).kind == "done"
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    process.stdout.close()
    transport.close()
    [path] = (tmp_path / "lake" / "tables" / "steps").rglob("live-*")
    assert pq.read_table(path, partitioning=None).num_rows == 1
