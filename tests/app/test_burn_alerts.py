"""Error budgets that burn ring by the rules of alerts, as they do on the fleet page."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from steptax.app.alerts.channels import text_of, title_of
from steptax.app.alerts.records import Message
from steptax.app.alerts.rules import BURN_FAST, BURN_SLOW, EXAMPLE, Rules, read_rules
from steptax.app.alerts.store import AlertStore
from steptax.app.alerts.watch import one_round
from steptax.app.compute.alerting import US_PER_S, Change
from steptax.app.errors import InputError
from steptax.app.lake import Lake
from steptax.app.views.alerting import burn_readings
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.review.budget import set_budget
from steptax.app.views.workspace import Workspace
from tests.app.fleet_lake import HOUR, S, event, job, lake_of, rows, steps, us

T0 = us(2026, 11, 2)
#: Red trains for two hours, then fails and recovers for one.
LOST_FROM = T0 + 2 * HOUR
RULES = """
[[rule]]
name = "burns"
metric = "burn_fast_x"
for_s = 0
clear_for_s = 0
{more}
[channel.ops]
kind = "webhook"
url = "http://127.0.0.1:9/hook"
"""


def rules_of(tmp_path: Path, more: str = "") -> Rules:
    path = tmp_path / "alerts.toml"
    path.write_text(RULES.format(more=more))
    return read_rules(path)


def burning_lake(root: Path, *, slo: float = 0.95) -> Workspace:
    """Red trains for two hours and then loses one; blue trains all the while."""
    ws = lake_of(
        root,
        jobs=[
            job("a", T0, None, team="red", state="running"),
            job("b", T0, None, team="blue", state="running"),
        ],
        events=[
            *(event(name, "process_start", T0) for name in "ab"),
            event("a", "failure", LOST_FROM),
            event("a", "restart", LOST_FROM + HOUR, attempt=1),
        ],
        steps=[*steps("a", T0, 120), *steps("b", T0, 300)],
    )
    for scope in ("all", "team:red", "team:blue"):
        set_budget(
            ws,
            scope=scope,
            period="2026-11",
            budget_usd=None,
            goodput_slo_ratio=slo,
            set_by="ada",
        )
    return ws


def told(messages: list[Message], *_: Any) -> Any:
    """A sender that keeps what it is given."""

    def send(_: Any, message: Message) -> None:
        messages.append(message)

    return send


def test_a_burning_budget_fires_at_the_rate_of_the_fleet_page_and_clears(tmp_path: Path) -> None:
    ws = burning_lake(tmp_path / "lake")
    rules, store = rules_of(tmp_path), AlertStore(tmp_path / "state.sqlite3")
    now = LOST_FROM + HOUR
    page = {row.scope: row.burns for row in fleet_view(ws, now_us=now).burn}
    found = {one.job_id: one for one in burn_readings(ws, now_us=now)}
    assert {name: one.values[BURN_FAST].value for name, one in found.items()} == {
        name: burns[0].rate.value for name, burns in page.items()
    }
    assert found["team:red"].values[BURN_SLOW] == page["team:red"][1].rate
    assert found["team:red"].alarms == {BURN_FAST: 14.0, BURN_SLOW: 6.0}
    ringing = {name for name, burns in page.items() if burns[0].rings}
    assert ringing == {"team:red"}
    messages: list[Message] = []
    done = one_round(store, rules, burn_readings(ws, now_us=now), now, sender=told(messages))
    assert (done.jobs, done.scopes, done.fired, done.sent) == (0, 3, 1, 1)
    (message,) = messages
    assert (message.job, message.change) == ("team:red", Change.FIRED)
    assert message.value == pytest.approx(20.0)
    assert title_of(message) == "[warning] burns: scope team:red"
    assert "burn rate of an error budget over the newest hour: 20.00×, above 14.00×" in message.text
    assert "The objective of team red in 2026-11 is a goodput of 95.0 %." in message.text
    priced = burn_readings(ws, price=Decimal(2), now_us=now)
    sentence = next(one.sentence for one in priced if one.job_id == "team:red")
    assert sentence.startswith("Goodput of team red in 2026-11 is 66.7 %, against an objective of")
    # Two hours of steps later nothing was lost in the newest hour.
    Lake(ws.root).append(
        "steps",
        rows(steps("a", LOST_FROM + HOUR, 120, attempt=1, first=120)),
        source="test",
    )
    later = LOST_FROM + 3 * HOUR
    done = one_round(store, rules, burn_readings(ws, now_us=later), later, sender=told(messages))
    assert (done.fired, done.cleared) == (0, 1)
    assert messages[-1].change is Change.CLEARED
    assert "its scope has no objective any more" in text_of(messages[-1])
    store.close()


def test_what_is_not_known_up_to_now_neither_rings_nor_clears(tmp_path: Path) -> None:
    ws = burning_lake(tmp_path / "lake")
    rules, store = rules_of(tmp_path), AlertStore(tmp_path / "state.sqlite3")
    now = LOST_FROM + HOUR
    one_round(store, rules, burn_readings(ws, now_us=now), now, sender=told([]))
    late = now + 48 * HOUR
    reading = next(one for one in burn_readings(ws, now_us=late) if one.job_id == "team:red")
    assert reading.values[BURN_FAST].value is None
    assert "newest hours that are known" in (reading.values[BURN_FAST].reason or "")
    done = one_round(store, rules, burn_readings(ws, now_us=late), late, sender=told([]))
    assert (done.fired, done.cleared) == (0, 0)
    assert [alert["cleared_us"] for alert in store.alerts()] == [None]
    # A rule that watches the scope no more lets it go.
    done = one_round(
        store, rules_of(tmp_path, 'scopes = "all"'), burn_readings(ws, now_us=late), late,
        sender=told([]),
    )  # fmt: skip
    assert done.cleared == 1
    store.close()


def test_a_rule_of_scopes_leaves_jobs_alone_and_the_reverse(tmp_path: Path) -> None:
    (burns,) = rules_of(tmp_path).rules
    assert burns.watches("team:red", is_scope=True)
    assert not burns.watches("a")
    assert not rules_of(tmp_path, 'scopes = "all"').rules[0].watches("team:red", is_scope=True)
    # A job may be called like a scope.
    tax = read_rules(_written(tmp_path, EXAMPLE)).rules[0]
    assert tax.watches("all")
    assert not tax.watches("all", is_scope=True)
    given = rules_of(tmp_path, "above = 5.0").rules[0].limit(14.0)
    assert (given.threshold, given.clear) == (5.0, 4.5)
    assert rules_of(tmp_path).rules[0].limit(9.0).threshold == 9.0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('jobs = "a*"', "an error budget is that of scopes"),
        ("clear = 3.0", "expected above or below with it"),
        ("above = 3.0\nbelow = 1.0", "expected either above or below"),
    ],
)
def test_faults_of_such_rules_are_named(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        rules_of(tmp_path, more)


def test_the_command_judges_budgets_only_where_a_rule_asks(
    steptax: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = int(datetime.now(UTC).timestamp() * US_PER_S)
    begin = now - 3 * HOUR
    ws = lake_of(
        tmp_path / "lake",
        jobs=[job("a", begin, None, state="running")],
        events=[event("a", "process_start", begin), event("a", "failure", begin + HOUR)],
        steps=steps("a", begin + 60 * S, 59),
    )
    monkeypatch.setenv("STEPTAX_LAKE", str(ws.root))
    set_budget(ws, scope="all", period=f"{datetime.now(UTC):%Y-%m}", budget_usd=None,
               goodput_slo_ratio=0.9, set_by="ada")  # fmt: skip
    _written(ws.root, '[[rule]]\nname = "quiet"\nmetric = "silent_s"\nabove = 60\n')
    assert steptax("alerts", "run", "--once")["scopes"] == 0
    _written(ws.root, '[[rule]]\nname = "b"\nmetric = "burn_slow_x"\nabove = 2.0\nfor_s = 0\n')
    assert steptax("alerts", "run", "--once")["scopes"] == 1


def _written(folder: Path, text: str) -> Path:
    path = folder / "alerts.toml"
    path.write_text(text)
    return path
