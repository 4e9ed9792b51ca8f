"""Alerts end to end: rules from a file, a real job, real receivers, one message each."""

from __future__ import annotations

import csv
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from steptax.app.alerts.records import Message
from steptax.app.alerts.rules import Rules, read_rules
from steptax.app.alerts.store import AlertStore
from steptax.app.alerts.watch import FIRST_WAIT_S, Round, one_round
from steptax.app.compute.alerting import US_PER_S
from steptax.app.compute.measure import Measure
from steptax.app.errors import InputError, NotFoundError
from steptax.app.views.alerting import Reading
from tests.app.mailbox import Mailbox

Steptax = Callable[..., Any]
NOW = 1_800_000_000 * US_PER_S


class Receiver:
    """A real HTTP server that answers what it is told to, and keeps what it got."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.got: list[dict[str, Any]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code = receiver.answers.pop(0) if receiver.answers else 200
                receiver.got.append(
                    {"body": json.loads(body), "headers": dict(self.headers), "answered": code}
                )
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook"

    @property
    def arrived(self) -> list[dict[str, Any]]:
        return [one["body"] for one in self.got if one["answered"] == 200]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AlertStore]:
    made = AlertStore(tmp_path / "alerts.sqlite3")
    yield made
    made.close()


def rules_of(tmp_path: Path, text: str) -> Rules:
    path = tmp_path / "alerts.toml"
    path.write_text(text)
    return read_rules(path)


def hook(receiver: Receiver, *, more: str = "") -> str:
    return f"""
[[rule]]
name = "tax"
metric = "straggler_tax_ratio"
above = 0.10
for_s = 0
clear_for_s = 0
{more}
[channel.ops]
kind = "webhook"
url = "{receiver.url}"
"""


def reading(value: float | None, job: str = "j") -> Reading:
    measure = Measure.missing("ratio", "?") if value is None else Measure(value, "ratio")
    return Reading(job, {"straggler_tax_ratio": measure}, "Rank 5 is slow.")


def play(
    store: AlertStore, rules: Rules, *values: float | None, every_s: float = 60
) -> list[Round]:
    return [
        one_round(store, rules, [reading(value)], NOW + int(place * every_s * US_PER_S))
        for place, value in enumerate(values)
    ]


def test_one_message_when_it_fires_and_one_when_it_clears(
    store: AlertStore, receiver: Receiver, tmp_path: Path
) -> None:
    rules = rules_of(tmp_path, hook(receiver))
    play(store, rules, 0.05, 0.2, 0.3, 0.2, 0.05, 0.05)
    fired, cleared = receiver.arrived
    assert (fired["change"], cleared["change"]) == ("fired", "cleared")
    assert fired["value"] == 0.2
    assert fired["job_id"] == "j"
    assert "20.0 %, above 10.0 %" in fired["text"]
    assert fired["text"].endswith("Rank 5 is slow.")
    # What it was when it fired is not said as if it still were.
    assert cleared["text"].startswith("Over: straggler_tax_ratio is back")
    assert "What was told when it fired: " in cleared["text"]
    assert receiver.got[0]["headers"]["Idempotency-Key"] == fired["id"]
    (alert,) = store.alerts()
    assert alert["cleared_us"] == NOW + 240 * US_PER_S


def test_delivery_is_retried_and_never_doubled(
    store: AlertStore, receiver: Receiver, tmp_path: Path
) -> None:
    rules = rules_of(tmp_path, hook(receiver))
    receiver.answers = [500, 503, 429]
    rounds = play(store, rules, *[0.2] * 8, every_s=FIRST_WAIT_S + 1)
    assert sum(r.failed for r in rounds) == 3
    assert len(receiver.arrived) == 1
    assert len({one["headers"]["Idempotency-Key"] for one in receiver.got}) == 1
    # Twice the waiting each time: 6 s pass between rounds, 5, 10 and 20 s are waited.
    assert [r.failed for r in rounds] == [1, 1, 0, 1, 0, 0, 0, 0]


def test_a_receiver_that_is_away_gets_it_later(
    store: AlertStore, receiver: Receiver, tmp_path: Path
) -> None:
    away = rules_of(tmp_path, hook(receiver).replace(receiver.url, "http://127.0.0.1:9/x"))
    (first,) = play(store, away, 0.2)
    assert (first.sent, first.failed) == (0, 1)
    (message,) = store.alerts()[0]["messages"]
    assert message["last_error"] == "ConnectionError"
    back = rules_of(tmp_path, hook(receiver))
    done = one_round(store, back, [reading(0.2)], NOW + 3600 * US_PER_S)
    assert (done.sent, done.failed) == (1, 0)
    assert len(receiver.arrived) == 1


@pytest.mark.parametrize("answer", [400, 404, 302])
def test_what_cannot_get_better_is_given_up(
    answer: int, store: AlertStore, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answers = [answer]
    rounds = play(store, rules_of(tmp_path, hook(receiver)), *[0.2] * 5, every_s=1000)
    (message,) = store.alerts()[0]["messages"]
    if answer == 302:  # a redirect is not followed, and may be mended
        assert message["state"] == "sent"
        assert len(receiver.got) == 2
        return
    assert sum(r.failed for r in rounds) == 1
    assert (message["state"], message["last_error"]) == ("given up", f"answered {answer}")
    assert len(receiver.got) == 1


def test_many_watchers_tell_once(receiver: Receiver, tmp_path: Path) -> None:
    rules = rules_of(tmp_path, hook(receiver))
    AlertStore(tmp_path / "many.sqlite3").close()

    def watch(_: int) -> None:
        own = AlertStore(tmp_path / "many.sqlite3")
        for place, value in enumerate([0.2, 0.2, 0.05, 0.05]):
            one_round(own, rules, [reading(value)], NOW + place * US_PER_S)
        own.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(watch, range(8)))
    keys = [one["id"] for one in receiver.arrived]
    assert len(keys) == len(set(keys))
    assert len({key for key in keys if "fired" in key}) >= 1


def test_a_sender_that_died_is_followed_by_another_with_the_same_key(
    store: AlertStore, receiver: Receiver, tmp_path: Path
) -> None:
    rules = rules_of(tmp_path, hook(receiver))

    def die(*_: object) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        one_round(store, rules, [reading(0.2)], NOW, sender=die)
    assert one_round(store, rules, [reading(0.2)], NOW + US_PER_S).sent == 0
    assert one_round(store, rules, [reading(0.2)], NOW + 700 * US_PER_S).sent == 1
    assert len(receiver.arrived) == 1


def test_a_mute_silences_and_is_recorded(
    store: AlertStore, receiver: Receiver, tmp_path: Path
) -> None:
    rules = rules_of(tmp_path, hook(receiver))
    number = store.mute(
        rule="t*", job="*", reason="known node", owner="ada", from_us=NOW, until_us=None
    )
    play(store, rules, 0.2, 0.05)
    assert not receiver.got
    (alert,) = store.alerts()
    assert (alert["mute_reason"], alert["mute_owner"]) == ("known node", "ada")
    store.unmute(number, NOW + 1)
    with pytest.raises(NotFoundError):
        store.unmute(number, NOW + 2)
    one_round(store, rules, [reading(0.2)], NOW + 500 * US_PER_S)
    assert len(receiver.arrived) == 1


def test_a_job_that_runs_no_more_is_over(
    store: AlertStore, receiver: Receiver, tmp_path: Path
) -> None:
    rules = rules_of(tmp_path, hook(receiver))
    play(store, rules, 0.2)
    done = one_round(store, rules, [], NOW + 60 * US_PER_S)
    assert done.cleared == 1
    assert [one["change"] for one in receiver.arrived] == ["fired", "cleared"]
    # One that could not be read is not gone.
    play(store, rules, 0.2)
    broken = Reading("j", {}, "", "the lake is away")
    done = one_round(store, rules, [broken], NOW + 120 * US_PER_S)
    assert (done.cleared, done.problems) == (0, ("j: the lake is away",))


def test_slack_gets_its_own_form_and_no_markup(
    store: AlertStore, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPS_URL", receiver.url)
    text = hook(receiver).replace('kind = "webhook"', 'kind = "slack"')
    rules = rules_of(tmp_path, text.replace(f'url = "{receiver.url}"', 'url_env = "OPS_URL"'))
    one_round(store, rules, [reading(0.2, job="<!channel>&")], NOW)
    (body,) = receiver.arrived
    assert body["blocks"][0]["type"] == "header"
    assert "<!channel>" not in body["text"]
    assert "&lt;!channel&gt;&amp;" in body["text"]


def test_mail_arrives_once_also_after_a_refusal(store: AlertStore, tmp_path: Path) -> None:
    mailbox = Mailbox()
    threading.Thread(target=mailbox.serve_forever, daemon=True).start()
    try:
        mailbox.busy = 1
        text = f"""
[[rule]]
name = "tax"
metric = "straggler_tax_ratio"
above = 0.10
for_s = 0
[channel.mail]
kind = "email"
host = "127.0.0.1"
port = {mailbox.server_address[1]}
sender = "steptax@example.org"
to = ["ada@example.org", "bob@example.org"]
starttls = false
"""
        rounds = play(store, rules_of(tmp_path, text), 0.2, 0.2, 0.2)
    finally:
        mailbox.shutdown()
        mailbox.server_close()
    assert [(r.sent, r.failed) for r in rounds] == [(0, 1), (1, 0), (0, 0)]
    (mail,) = mailbox.mails
    assert "Subject: [warning] tax: job j" in mail
    assert "To: ada@example.org, bob@example.org" in mail
    assert re.search(r"Message-ID: <steptax-[0-9a-f]{32}-1-fired-mail@127.0.0.1>", mail)
    assert "Rank 5 is slow." in mail


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[rule]", "is no TOML"),
        ('[[rule]]\nname="a"\nmetric="tax"\nabove=1', "rule.0 (a): there is no metric 'tax'"),
        ('[[rule]]\nname="a"\nmetric="silent_s"', "expected either above or below"),
        ('[[rule]]\nname="a"\nmetric="silent_s"\nabove=1\nclear=2', "at most the threshold"),
        ('[[rule]]\nname="a"\nmetric="silent_s"\nabove=1\nfor=3', "rule.0.for (a)"),
        (
            '[[rule]]\nname="a"\nmetric="silent_s"\nabove=1\nchannels=["x"]',
            "names the channel 'x', which is not there",
        ),
        ('[channel.x]\nkind="slack"\nurl="http://a"', "the URL of Slack is a secret"),
        ('[channel.x]\nkind="webhook"', "expected one of url, url_env, url_file"),
        ('[channel.x]\nkind="pager"', "channel.x"),
        ('[channel."x y"]\nkind="webhook"\nurl="http://a"', "channel.x y"),
        (
            '[channel.x]\nkind="email"\nhost="a"\nsender="a@b\\nBcc: c@d"\nto=["a@b"]',
            "channel.x.email.sender",
        ),
        (
            '[[rule]]\nname="a"\nmetric="silent_s"\nabove=1\n' * 2,
            "two rules are called 'a'",
        ),
    ],
)
def test_faults_of_the_rules_are_named(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        rules_of(tmp_path, text)
    assert told in caught.value.message
    assert caught.value.where == str(tmp_path / "alerts.toml")
    assert caught.value.hint


def test_a_share_that_fell_below_can_clear(tmp_path: Path) -> None:
    (rule,) = rules_of(tmp_path, '[[rule]]\nname="a"\nmetric="goodput_ratio"\nbelow=0.95').rules
    assert rule.limit().clear == pytest.approx(0.975)


def test_secrets_are_read_late_and_from_closed_files(
    store: AlertStore, receiver: Receiver, tmp_path: Path
) -> None:
    secret = tmp_path / "url"
    secret.write_text(receiver.url)
    secret.chmod(0o644)
    text = hook(receiver).replace(f'url = "{receiver.url}"', f'url_file = "{secret}"')
    rules = rules_of(tmp_path, text)
    (first,) = play(store, rules, 0.2)
    assert first.failed == 1
    (message,) = store.alerts()[0]["messages"]
    assert "others can read this secret" in message["last_error"]
    assert receiver.url not in message["last_error"]
    secret.chmod(0o600)
    assert one_round(store, rules, [reading(0.2)], NOW + 60 * US_PER_S).sent == 1


def write_running(path: Path, slow_ms: float) -> None:
    """A job of 4 ranks that runs until now; rank 2 is slower."""
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["step", "rank", "start_s", "compute_ms", "comm_ms", "duration_ms"])
        begin_s = time.time() - 60 * 0.2
        for step in range(60):
            for rank in range(4):
                work = 100 + (slow_ms if rank == 2 else 0) + (step * 7 + rank * 3) % 5
                writer.writerow([step, rank, f"{begin_s + step * 0.2:.6f}", work, 200 - work, 200])


def test_a_running_job_fires_by_the_command(
    steptax: Steptax, receiver: Receiver, tmp_path: Path
) -> None:
    steps = tmp_path / "run.csv"
    write_running(steps, 60)
    steptax("ingest", "steps", steps, "--job", "train-1")
    lake = Path(os.environ["STEPTAX_LAKE"])
    (lake / "alerts.toml").write_text(hook(receiver, more='jobs = "train-*"'))
    done = steptax("alerts", "run", "--once")
    assert (done["jobs"], done["fired"], done["sent"]) == (1, 1, 1)
    (body,) = receiver.arrived
    assert body["job_id"] == "train-1"
    assert "rank 2" in body["text"].lower()
    again = steptax("alerts", "run", "--once")
    assert (again["fired"], again["sent"]) == (0, 0)
    listed = steptax("alerts", "list")
    assert [a["rule"] for a in listed["alerts"]] == ["tax"]
    number = steptax("alerts", "mute", "--reason", "new cable", "--job", "train-*")["mute"]
    assert steptax("alerts", "list")["mutes"][0]["reason"] == "new cable"
    steptax("alerts", "unmute", number)
    steptax("alerts", "test", "ops")
    assert receiver.arrived[-1]["rule"] == "test"


def test_commands_say_what_is_missing(steptax: Steptax, tmp_path: Path) -> None:
    error = steptax("alerts", "run", "--once", fails=2)
    assert error["kind"] == "NotFoundError"
    steps = tmp_path / "run.csv"
    write_running(steps, 0)
    steptax("ingest", "steps", steps, "--job", "a")
    error = steptax("alerts", "run", "--once", fails=2)
    assert "there are no rules" in error["message"]
    assert "[[rule]]" in error["hint"]
    assert "[[rule]]" in steptax("alerts", "example")["toml"]
    error = steptax("alerts", "mute", "--reason", " ", fails=2)
    assert error["where"] == "--reason"


def test_one_bad_channel_does_not_keep_the_others_from_being_told(
    store: AlertStore, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAD_TOKEN", "t\N{LATIN SMALL LETTER O WITH DIAERESIS}k\N{EURO SIGN}n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "binary").chmod(0o600)
    more = f"""
[channel.accent]
kind = "webhook"
url = "{receiver.url}"
token_env = "BAD_TOKEN"
[channel.label]
kind = "webhook"
url = "http://{"a" * 70}.example/x"
[channel.binary]
kind = "webhook"
url_file = "{tmp_path / "binary"}"
"""
    (done,) = play(store, rules_of(tmp_path, hook(receiver) + more), 0.2)
    assert (done.sent, done.failed) == (1, 3)
    assert len(receiver.arrived) == 1
    errors = [m["last_error"] for m in store.alerts()[0]["messages"] if m["last_error"]]
    assert all("k\N{EURO SIGN}" not in error for error in errors)


def test_a_slow_round_keeps_its_messages(store: AlertStore, tmp_path: Path) -> None:
    """A second watcher must not take what the first one is about to send."""
    names = [f"c{i}" for i in range(9)]
    channels = "".join(
        f'[channel.{name}]\nkind = "webhook"\nurl = "http://127.0.0.1:9"\n' for name in names
    )
    rules = rules_of(
        tmp_path,
        '[[rule]]\nname = "tax"\nmetric = "straggler_tax_ratio"\nabove = 0.1\nfor_s = 0\n'
        + channels,
    )
    now = [NOW]
    sent: list[str] = []
    second = AlertStore(tmp_path / "alerts.sqlite3")

    def slow(_channel: object, message: Message) -> None:
        sent.append(message.key)
        now[0] += 100 * US_PER_S
        while (other := second.claim(now[0], now[0])) is not None:
            sent.append(other.key)

    one_round(store, rules, [reading(0.2)], NOW, sender=slow, clock=lambda: now[0])
    second.close()
    assert sorted(sent) == sorted(set(sent))
    assert len(sent) == len(names)


def test_keys_of_two_lakes_differ(receiver: Receiver, tmp_path: Path) -> None:
    rules = rules_of(tmp_path, hook(receiver))
    for name in ("a", "b"):
        store = AlertStore(tmp_path / f"{name}.sqlite3")
        play(store, rules, 0.2)
        store.close()
    keys = [one["headers"]["Idempotency-Key"] for one in receiver.got]
    assert len(set(keys)) == 2


def test_after_a_mute_an_open_alert_is_told(
    store: AlertStore, receiver: Receiver, tmp_path: Path
) -> None:
    rules = rules_of(tmp_path, hook(receiver))
    store.mute(
        rule="*",
        job="*",
        reason="known",
        owner="ada",
        from_us=NOW,
        until_us=NOW + 100 * US_PER_S,
    )
    rounds = play(store, rules, 0.2, 0.2, 0.2, 0.2)
    assert [r.sent for r in rounds] == [0, 0, 1, 0]
    assert len(receiver.arrived) == 1


def test_a_mute_also_holds_messages_that_wait(
    store: AlertStore, receiver: Receiver, tmp_path: Path
) -> None:
    rules = rules_of(tmp_path, hook(receiver))
    receiver.answers = [503]
    play(store, rules, 0.2)
    store.mute(rule="*", job="*", reason="known", owner="ada", from_us=NOW, until_us=None)
    done = one_round(store, rules, [reading(0.2)], NOW + 600 * US_PER_S)
    assert (done.sent, done.failed) == (0, 0)
    assert store.alerts()[0]["mute_reason"] == "known"
    assert not receiver.arrived


def test_a_rule_that_watches_a_job_no_more_lets_it_go(
    store: AlertStore, receiver: Receiver, tmp_path: Path
) -> None:
    play(store, rules_of(tmp_path, hook(receiver)), 0.2)
    other = rules_of(tmp_path, hook(receiver, more='jobs = "other-*"'))
    assert one_round(store, other, [reading(0.2)], NOW + US_PER_S).cleared == 1
