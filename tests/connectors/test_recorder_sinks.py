"""The way of rows from a spool over the network: what is named, packed, sent, kept and given up."""

from __future__ import annotations

import json
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from steptax.connectors.recorder import StepRecorder
from steptax.connectors.recorder.batch import (
    Header,
    Piece,
    decode_batch,
    encode_batch,
    inflate,
    read_header,
)
from steptax.connectors.recorder.lock import Lock
from steptax.connectors.recorder.notes import Notes
from steptax.connectors.recorder.over_http import HttpTransport
from steptax.connectors.recorder.segments import encode_json_lines, segment_name
from steptax.connectors.recorder.sender import Sender
from steptax.connectors.recorder.spool import Gaps, Spool, default_spool
from steptax.connectors.recorder.spoolsink import SpoolSink
from steptax.connectors.recorder.target import Secret, Target, read_target, read_token
from steptax.connectors.recorder.transport import (
    DONE,
    LONGEST_ASKED_S,
    LONGEST_WAIT_S,
    Answer,
    Backoff,
)
from tests.patience import PATIENCE_S

# -- what is named ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lake", "target"),
    [
        ("/shared/lake", Target("folder", "/shared/lake")),
        ("relative", Target("folder", "relative")),
        (Path("/a/b"), Target("folder", "/a/b")),
        ("file:///a/b%20c", Target("folder", "/a/b c")),
        ("https://host:8600/", Target("http", "https://host:8600")),
        ("HTTP://[::1]:8600/base", Target("http", "HTTP://[::1]:8600/base")),
        ("s3://bucket/lake", Target("fsspec", "s3://bucket/lake")),
        ("memory://lake", Target("fsspec", "memory://lake")),
    ],
)
def test_what_a_lake_names(lake: Any, target: Target) -> None:
    assert read_target(lake) == target


@pytest.mark.parametrize(
    "url",
    ["https://user:hunter2@host", "https://host/?token=hunter2", "http://", "http://host:hunter2"],
)
def test_urls_that_are_refused_leave_no_secret_behind(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        recorder = StepRecorder(url, "j", 0, 1, spool=tmp_path)
    assert recorder.stats["state"] == "disabled"
    assert "nothing will be recorded" in caplog.text
    assert "hunter2" not in caplog.text
    assert "hunter2" not in str(recorder.stats)


def test_a_token_is_that_of_the_environment_and_prints_as_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STEPTAX_TOKEN", " hunter2\n")
    assert read_token(None).value == "hunter2"
    assert read_token("other").value == "other"
    monkeypatch.delenv("STEPTAX_TOKEN")
    assert read_token(None).value is None
    assert "hunter2" not in repr(Secret("hunter2"))
    with pytest.raises(ValueError, match="ASCII") as refused:
        read_token("hunter2\r\nX-Evil: 1")
    assert "hunter2" not in str(refused.value)


# -- batches ------------------------------------------------------------------------------------


def columns_of(job_id: str, rank: int, steps: Sequence[int]) -> dict[str, list[Any]]:
    same = {"job_id": job_id, "attempt": 0, "rank": rank, "source": "recorder"}
    columns = {name: [value] * len(steps) for name, value in same.items()}
    return {
        **columns,
        "step": list(steps),
        "duration_us": [10] * len(steps),
        "ingested_at_us": [1] * len(steps),
    }


def piece_of(
    rank: int, steps: Sequence[int], job_id: str = "j", at_us: int = 1
) -> tuple[Piece, bytes]:
    columns = columns_of(job_id, rank, steps)
    data = encode_json_lines("steps", columns, len(steps))
    name, first, last = segment_name("steps", columns, len(steps), at_us, "jsonl")
    return Piece("steps", job_id, rank, 0, name, len(steps), first, last, len(data)), data


PIECES = st.builds(
    Piece,
    st.sampled_from(["steps", "jobs", "ranks", "events"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.just("live-00000000000000001-0-4-5-0123abcd.jsonl"),
    *[st.integers(0, 2**63 - 1)] * 3,
    st.just(0),
)


@given(
    st.lists(st.tuples(PIECES, st.binary(max_size=200)), min_size=1, max_size=5),
    st.integers(1, 2**63 - 1),
)
def test_a_batch_holds_what_was_put_into_it(parts: list[tuple[Piece, bytes]], seq: int) -> None:
    pieces = tuple(piece._replace(size=len(body)) for piece, body in parts)
    header = Header("0" * 32, seq, "host", 7, pieces)
    data = encode_batch(header, [body for _, body in parts])
    assert data == encode_batch(header, [body for _, body in parts])
    assert read_header(data) == header
    found, segments = decode_batch(inflate(data, 10**6))
    assert found == header
    assert segments == list(zip(pieces, (body for _, body in parts), strict=True))


@given(st.binary(max_size=300), st.integers(0, 400))
def test_whatever_is_no_batch_is_a_value_error(noise: bytes, cut: int) -> None:
    piece, body = piece_of(3, [0, 1])
    whole = encode_batch(Header("a" * 32, 1, "h", 1, (piece,)), [body])
    for data in (noise, whole[:cut], whole + noise[:5] + b"x"):
        if data == whole:
            continue
        with pytest.raises(ValueError):
            decode_batch(inflate(data, 10**6))


def test_a_bomb_is_not_unpacked() -> None:
    bomb = encode_batch(Header("a" * 32, 1, "h", 1, (piece_of(0, [0])[0],)), [bytes(50_000_000)])
    assert len(bomb) < 1_000_000
    with pytest.raises(ValueError, match="more than 1,000,000 bytes"):
        inflate(bomb, 1_000_000)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"table": "charges"}, "piece 0, table"),
        ({"name": "../../x"}, "piece 0, name"),
        ({"job_id": ""}, "piece 0, job_id"),
        ({"rank": -1}, "piece 0, rank"),
        ({"rank": True}, "piece 0, rank"),
        ({"rows": 1.5}, "piece 0, rows"),
    ],
)
def test_a_header_that_is_wrong_says_where(change: dict[str, Any], reason: str) -> None:
    piece = {**piece_of(0, [0])[0]._asdict(), "size": 0, **change}
    head = {"format": 1, "stream": "a" * 32, "seq": 1, "created_us": 1, "pieces": [piece]}
    with pytest.raises(ValueError, match=reason):
        decode_batch(json.dumps(head).encode() + b"\n")


# -- back-off -----------------------------------------------------------------------------------


@given(st.integers(0, 200), st.none() | st.floats(0, 1e6))
def test_the_wait_grows_is_jittered_and_never_less_than_asked(
    failures: int, asked_s: float | None
) -> None:
    backoff = Backoff()
    backoff.failures = failures
    full_s = min(LONGEST_WAIT_S, 0.5 * 2.0 ** min(failures, 30))
    wait_s = backoff.failed(asked_s)
    if asked_s is None:
        assert full_s / 2 <= wait_s <= full_s
    else:
        assert wait_s >= min(asked_s, LONGEST_ASKED_S)
        assert wait_s <= max(full_s, 1.5 * LONGEST_ASKED_S)
    backoff.succeeded()
    assert backoff.failed(None) <= 0.5


def test_senders_that_failed_together_do_not_come_back_together() -> None:
    random.seed(1)
    waits = []
    for _ in range(100):
        backoff = Backoff()
        backoff.failures = 4
        waits.append(backoff.failed(2.0))
    assert max(waits) - min(waits) > 1.0


# -- the sender ---------------------------------------------------------------------------------


class Receiver:
    """Stores as a collector does: by stream and number. Answers what it was told to."""

    pack_s = 0.0
    beat_s = 0.0

    def __init__(self) -> None:
        self.marks: dict[str, int] = {}
        self.rows: list[tuple[str, int, int]] = []
        self.beats: dict[int, dict[str, Any]] = {}
        self.sent = 0
        self.answers: list[Answer] = []
        self.loses_answers = 0

    def send(self, data: bytes, *, is_first: bool) -> Answer:
        self.sent += 1
        if self.answers:
            return self.answers.pop(0)
        header, parts = decode_batch(inflate(data, 10**8))
        if header.seq > self.marks.get(header.stream, 0):
            self.marks[header.stream] = header.seq
            for piece, body in parts:
                for line in body.splitlines():
                    self.rows.append((piece.job_id, piece.rank, json.loads(line)["step"]))
        if self.loses_answers:
            self.loses_answers -= 1
            return Answer("retry", "the answer was lost")
        return DONE

    def send_beats(self, sender: str, beats: Sequence[dict[str, Any]]) -> Answer:
        self.beats |= {beat["rank"]: beat for beat in beats}
        return DONE

    def close(self) -> None:
        pass


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(str(tmp_path / "spool"))


def put(spool: Spool, rank: int, steps: Sequence[int], at_us: int = 1, job_id: str = "j") -> None:
    spool.put(*piece_of(rank, steps, job_id, at_us))


def sender_of(spool: Spool, receiver: Receiver, limit_bytes: int = 10**9) -> Sender:
    return Sender(spool, lambda: receiver, Notes(), limit_bytes)


def drained(sender: Sender) -> bool:
    return sender.drain(time.monotonic() + PATIENCE_S, patience_s=PATIENCE_S)


def files(spool: Spool, part: str) -> list[str]:
    """What is there; what a killed writer had begun is removed after an hour."""
    found = [n for _, _, names in os.walk(os.path.join(spool.folder, part)) for n in names]
    return [name for name in found if not name.endswith(".tmp")]


def test_everything_arrives_once_and_nothing_stays(spool: Spool) -> None:
    receiver = Receiver()
    for rank in range(5):
        put(spool, rank, range(10), job_id="a/b ü")
    sender = sender_of(spool, receiver)
    sender.turn()
    assert sorted(receiver.rows) == [("a/b ü", rank, n) for rank in range(5) for n in range(10)]
    assert receiver.sent == 1
    assert (sender.rows_sent, sender.rows_lost) == (50, 0)
    assert files(spool, "in") == files(spool, "batches") == []


def test_a_batch_whose_answer_was_lost_is_not_doubled(spool: Spool) -> None:
    receiver = Receiver()
    receiver.loses_answers = 2
    put(spool, 0, range(3))
    assert drained(sender_of(spool, receiver))
    assert receiver.sent == 3
    assert len(receiver.rows) == 3


def test_a_batch_whose_answer_was_lost_is_not_doubled_by_the_next_sender(spool: Spool) -> None:
    receiver = Receiver()
    receiver.loses_answers = 1
    put(spool, 0, range(3))
    sender_of(spool, receiver).turn()
    put(spool, 0, range(3, 5))
    assert drained(sender_of(spool, receiver))
    assert sorted(step for _, _, step in receiver.rows) == [0, 1, 2, 3, 4]


def test_a_clock_that_was_set_back_does_not_change_the_order_of_a_stream(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver()
    receiver.answers = [Answer("retry", "away")] * 3
    sender = sender_of(spool, receiver, limit_bytes=4)
    sender._limit_bytes = 10**9  # pack at once, drop nothing
    for now_s in (3_000, 1_000, 2_000):
        monkeypatch.setattr(time, "time_ns", lambda now_s=now_s: now_s * 10**9)
        put(spool, 0, [now_s])
        sender.turn()
    monkeypatch.undo()
    assert len(files(spool, "batches")) == 3
    receiver.answers = []
    assert drained(sender_of(spool, receiver))
    assert [step for _, _, step in receiver.rows] == [3_000, 1_000, 2_000]


@pytest.mark.parametrize("answer", [Answer("retry", "HTTP 429: busy", 0.0), Answer("retry", "x")])
def test_it_tries_again_until_it_is_taken(answer: Answer, spool: Spool) -> None:
    receiver = Receiver()
    receiver.answers = [answer] * 2
    put(spool, 0, range(3))
    sender = sender_of(spool, receiver)
    sender.turn()
    assert sender.is_refused
    sender.turn()  # not before its time
    assert receiver.sent == 1
    assert drained(sender)
    assert not sender.is_refused
    assert len(receiver.rows) == 3


def test_what_will_never_be_taken_is_given_up_and_said(spool: Spool) -> None:
    receiver = Receiver()
    receiver.answers = [Answer("refused", "HTTP 400: too odd")]
    put(spool, 2, range(4, 8))
    beat(spool, 2)
    sender = sender_of(spool, receiver)
    assert drained(sender)
    assert (sender.rows_sent, sender.rows_lost) == (0, 4)
    assert receiver.beats[2]["rows_dropped"] == 1 + 4
    assert receiver.beats[2]["last_error"] == (
        "4 rows of steps 4 to 7 were lost on the way: the collector refused them, HTTP 400: too odd"
    )
    assert files(spool, "batches") == []


def test_a_piece_that_is_refused_does_not_take_the_others_along(spool: Spool) -> None:
    receiver = Receiver()
    receiver.answers = [Answer("done", lost=((1, "odd"), (99, "no such piece")))]
    put(spool, 0, range(3), at_us=1)
    put(spool, 1, range(5), at_us=2)
    sender = sender_of(spool, receiver)
    sender.turn()
    assert (sender.rows_sent, sender.rows_lost) == (3, 5)
    assert sender.gaps.of("j", 1)[0] == 5
    assert sender.gaps.of("j", 0) == (0, None)


def beat(spool: Spool, rank: int) -> None:
    folder, name = spool.beat_path("j", rank)
    os.makedirs(folder, exist_ok=True)
    Path(folder, name).write_text(json.dumps({"rank": rank, "rows_dropped": 1, "ts_us": 1}))


def test_a_spool_that_is_full_drops_the_oldest_and_counts_them(spool: Spool) -> None:
    receiver = Receiver()
    receiver.answers = [Answer("retry", "away")] * 1_000
    limit_bytes = 5_000
    sender = sender_of(spool, receiver, limit_bytes)
    beat(spool, 0)
    for n in range(200):
        put(spool, 0, [n], at_us=n + 1)
        sender.turn()
        size = sum(packed.size for packed in spool.packed())
        assert size + sum(entry.piece.size for entry in spool.entries()) < 2 * limit_bytes
    receiver.answers = []
    assert drained(sender)
    arrived = sorted(step for _, _, step in receiver.rows)
    assert 0 < len(arrived) < 200
    assert arrived == list(range(200 - len(arrived), 200))  # the newest
    assert sender.rows_lost == 200 - len(arrived)
    assert receiver.beats[0]["rows_dropped"] == 1 + sender.rows_lost
    lost = f"steps 0 to {199 - len(arrived)}"
    assert lost in receiver.beats[0]["last_error"]
    # A next sender knows of the gap.
    assert Gaps(spool).of("j", 0)[0] == sender.rows_lost


def test_a_gap_is_counted_once_though_its_sender_was_killed_while_it_removed(spool: Spool) -> None:
    put(spool, 0, range(6))
    [entry] = spool.entries()
    data = Path(entry.path).read_bytes()
    Gaps(spool).drop([entry.piece], [entry.path], "full")
    Path(entry.path).write_bytes(data)  # as if it had been killed just before
    gaps = Gaps(spool)
    assert gaps.of("j", 0)[0] == 6
    assert spool.entries() == []


def test_what_cannot_be_removed_from_the_spool_is_not_sent_twice(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver()
    for rank in range(3):
        put(spool, rank, range(2), at_us=rank + 1)
    sender = sender_of(spool, receiver)
    remove = os.unlink

    def refuse(path: str) -> None:
        if "/in/" in path:
            raise OSError(5, "Input/output error", path)
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        sender.turn()
        sender.turn()
    assert receiver.rows == []
    assert drained(sender)
    assert len(receiver.rows) == len(set(receiver.rows)) == 6


def test_what_the_disk_lost_is_not_sent(spool: Spool) -> None:
    receiver = Receiver()
    put(spool, 0, range(3), at_us=1)
    put(spool, 1, range(3), at_us=2)
    torn = spool.entries()[0].path
    Path(torn).write_bytes(Path(torn).read_bytes()[:-5])
    Path(spool.folder, "batches", f"{1:017d}-{'a' * 32}-000000001.gz").write_bytes(b"\x1f\x8b torn")
    sender = sender_of(spool, receiver)
    assert drained(sender)
    assert [rank for _, rank, _ in receiver.rows] == [1] * 3
    assert sender.gaps.of("j", 0)[0] == 3


def test_a_transport_that_cannot_be_made_yet_is_tried_again(spool: Spool) -> None:
    receiver = Receiver()
    tries: list[int] = []

    def connect() -> Receiver:
        tries.append(1)
        if len(tries) < 3:
            raise ImportError("no fsspec")
        return receiver

    notes = Notes()
    put(spool, 0, range(3))
    assert drained(Sender(spool, connect, notes, 10**9))
    assert len(receiver.rows) == 3
    assert "no fsspec" in str(notes.last_error)


class Killed(BaseException):
    """Stands for the end of the process: nothing of ours catches it."""


@pytest.mark.parametrize("loses_answer", [False, True])
def test_a_sender_that_is_killed_at_any_moment_loses_and_doubles_nothing(
    loses_answer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = 0
    while True:
        moment += 1
        spool = Spool(str(tmp_path / str(moment)))
        receiver = Receiver()
        receiver.loses_answers = int(loses_answer)
        for rank in range(3):
            put(spool, rank, range(4), at_us=rank + 1)
        left = [moment]

        def dying(call: Callable[..., Any], left: list[int] = left) -> Callable[..., Any]:
            def called(*arguments: Any, **keywords: Any) -> Any:
                left[0] -= 1
                if left[0] <= 0:
                    raise Killed
                return call(*arguments, **keywords)

            return called

        was_killed = False
        with monkeypatch.context() as patch:
            for name in ("open", "rename", "replace", "unlink", "fsync", "write"):
                patch.setattr(os, name, dying(getattr(os, name)))
            patch.setattr(receiver, "send", dying(receiver.send))
            try:
                sender = sender_of(spool, receiver)
                sender.turn()
                sender.turn()
            except Killed:
                was_killed = True
        put(spool, 9, [0], at_us=99)
        assert drained(sender_of(spool, receiver)), moment
        expected = [("j", rank, step) for rank in range(3) for step in range(4)] + [("j", 9, 0)]
        assert sorted(receiver.rows) == expected, moment
        assert files(spool, "in") == files(spool, "batches") == [], moment
        if not was_killed:
            break
    assert moment > 8


# -- who sends ----------------------------------------------------------------------------------


def test_one_holder_at_a_time_and_none_after_the_file_was_taken_away(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first, second = Lock(path), Lock(path)
    assert first.acquire()
    assert first.acquire()
    assert not second.acquire()
    assert first.is_current()
    os.unlink(path)
    assert not first.is_current()
    assert second.acquire()
    assert second.is_current()
    assert not first.is_current()
    first.release()
    second.release()
    assert first.acquire()
    first.release()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock, other = Lock(str(tmp_path / "lock")), Lock(str(tmp_path / "lock"))
    assert lock.acquire()
    (begin, end), (forked, say) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:  # a data loader's worker, which lives longer than its parent
        os.close(end)
        os.write(say, b"x")
        os.read(begin, 1)
        os._exit(0)
    assert os.read(forked, 1) == b"x"
    assert not other.acquire()
    lock.forget()  # as when this process ends
    assert other.acquire()
    other.release()
    for handle in (begin, end, forked, say):
        os.close(handle)
    assert os.waitpid(child, 0)[1] == 0


def test_a_lock_is_let_go_even_while_a_child_is_being_forked(tmp_path: Path) -> None:
    lock, other = Lock(str(tmp_path / "lock")), Lock(str(tmp_path / "lock"))
    assert lock.acquire()
    assert lock._handle is not None
    copy = os.dup(lock._handle)
    lock.release()
    assert other.acquire()
    other.release()
    os.close(copy)


def sink_of(spool: Spool, receiver: Receiver, rank: int, limit_bytes: int = 10**9) -> SpoolSink:
    return SpoolSink(spool, lambda: receiver, ("j", rank, 0), None, Notes(), limit_bytes)


def test_a_rank_that_sends_is_followed_by_another(spool: Spool) -> None:
    receiver = Receiver()
    first, second = sink_of(spool, receiver, 0), sink_of(spool, receiver, 1)
    first.turn()
    second.turn()
    assert (first.stats()["is_sender"], second.stats()["is_sender"]) == (True, False)
    second.write("steps", columns_of("j", 1, [0]), 1, 1)
    first.close()
    second.turn()
    assert (first.stats()["is_sender"], second.stats()["is_sender"]) == (False, True)
    second.write("steps", columns_of("j", 1, [1]), 1, 2)
    second.close()
    assert sorted(receiver.rows) == [("j", 1, 0), ("j", 1, 1)]


def test_a_process_that_ends_at_once_sends_while_it_closes(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    receiver = Receiver()
    sink = sink_of(spool, receiver, 0)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    sink.turn()
    sink.write("steps", columns_of("j", 0, [0]), 1, 1)
    sink.turn()
    sink.close()
    assert receiver.rows == [("j", 0, 0)]
    assert not sink.stats()["is_sender"]


def test_a_sender_whose_lock_was_taken_away_steps_down(spool: Spool) -> None:
    sink = sink_of(spool, Receiver(), 0)
    sink.turn()
    thread = sink._thread
    assert thread is not None
    os.unlink(spool.lock_path)
    thread.join()
    assert not sink.stats()["is_sender"]
    sink.turn()
    assert sink.stats()["is_sender"]
    sink.close()


def test_a_rank_keeps_its_own_bound_when_the_sender_hangs(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steptax.connectors.recorder.spoolsink.HUNG_S", -1.0)
    hung = Lock(spool.lock_path)
    assert hung.acquire()
    sink = sink_of(spool, Receiver(), 0, limit_bytes=40_000)
    for step in range(100):
        sink.turn()
        sink.write("steps", columns_of("j", 0, [step]), 1, step + 1)
    entries = spool.entries()
    assert sum(entry.piece.size for entry in entries) <= 5_000
    assert [entry.piece.first for entry in entries] == list(range(100 - len(entries), 100))
    assert sink.lost == 100 - len(entries)
    hung.release()


def test_a_spool_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(PermissionError, match="name another spool"):
        Spool(str(tmp_path / "open"))
    with pytest.raises(PermissionError, match="name another spool"):
        Spool(str(tmp_path / "open" / "inner"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(PermissionError):
        Spool(str(tmp_path / "link"))
    assert os.stat(Spool(str(tmp_path / "new" / "one")).folder).st_mode & 0o777 == 0o700


def test_each_destination_has_a_spool_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPTAX_SPOOL", "/local/spool")
    assert default_spool("http://a") != default_spool("http://b")
    assert default_spool("http://a").startswith("/local/spool/")


def test_a_rank_does_not_wait_long_for_a_network_that_is_away(
    spool: Spool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steptax.connectors.recorder.spoolsink.PATIENCE_S", 0.1)
    receiver = Receiver()
    receiver.answers = [Answer("retry", "away")] * 1_000
    sink = sink_of(spool, receiver, 0)
    sink.write("steps", columns_of("j", 0, range(3)), 3, 1)
    with caplog.at_level(logging.WARNING, "steptax.recorder"):
        sink.close()
    assert f"rows wait in {spool.folder}" in caplog.text
    receiver.answers = []
    sink_of(spool, receiver, 1).close()  # the next recorder on this node
    assert len(receiver.rows) == 3


def test_many_ranks_close_at_once_and_all_rows_and_beats_arrive(spool: Spool) -> None:
    receiver = Receiver()
    receiver.pack_s = receiver.beat_s = 60.0  # closing does not wait for these
    sinks = [sink_of(spool, receiver, rank) for rank in range(8)]
    for sink in sinks:
        sink.turn()
    time.sleep(0.1)  # the sender has packed for the first time, and waits

    def finish(rank: int) -> None:
        sinks[rank].write("steps", columns_of("j", rank, range(5)), 5, rank + 1)
        sinks[rank].beat({"rank": rank, "state": "closed", "ts_us": 1})
        sinks[rank].close()

    threads = [threading.Thread(target=finish, args=(rank,)) for rank in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(receiver.rows) == [("j", rank, n) for rank in range(8) for n in range(5)]
    assert sorted(receiver.beats) == list(range(8))


# -- over HTTP, with other servers than a collector ---------------------------------------------


def answering(*answers: bytes) -> tuple[str, threading.Thread]:
    """A server that gives these bytes, one connection each; its URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                received = b""
                while b"body" not in received:
                    received += connection.recv(65_536)
                connection.sendall(answer)
        listener.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}", thread


@pytest.mark.parametrize(
    ("answer", "reason", "after_s"),
    [
        (b"", "RemoteDisconnected", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n", "cut short", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "other than a collector", None),
        (b"SSH-2.0-OpenSSH\r\n", "BadStatusLine", None),
        (b"HTTP/1.1 302 Found\r\nLocation: http://evil\r\nContent-Length: 0\r\n\r\n", "302", None),
        (b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", "429", 7.0),
        (b"HTTP/1.1 503 No\r\nRetry-After: 1.5\r\nContent-Length: 0\r\n\r\n", "503", None),
        (
            b"HTTP/1.1 503 No\r\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n"
            b"Content-Length: 0\r\n\r\n",
            "503",
            0.0,
        ),
    ],
)
def test_whatever_answers_the_rows_are_kept(
    answer: bytes, reason: str, after_s: float | None
) -> None:
    url, thread = answering(answer)
    transport = HttpTransport(url, Secret("hunter2"))
    found = transport.send(b"body", is_first=True)
    thread.join()
    transport.close()
    assert found.kind == "retry"
    assert reason in str(found.reason)
    assert found.after_s == after_s
    assert "hunter2" not in str(found)


def test_a_connection_that_was_closed_while_it_lay_idle_is_opened_again() -> None:
    stored = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"stored":1}'
    url, thread = answering(stored, stored)
    transport = HttpTransport(url, Secret(None))
    assert transport.send(b"body", is_first=True).kind == "done"
    assert transport.send(b"body", is_first=True).kind == "done"
    thread.join()
    transport.close()
