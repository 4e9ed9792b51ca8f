"""``steptax alerts``: rules over jobs and error budgets, who is told, what was told, silence."""

from __future__ import annotations

import getpass
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from steptax.app.alerts.channels import send
from steptax.app.alerts.records import Message
from steptax.app.alerts.rules import EXAMPLE, RULES_FILE, Rules, read_rules
from steptax.app.alerts.store import STATE_FILE, AlertStore
from steptax.app.alerts.watch import one_round
from steptax.app.commands.options import JsonFlag, LakeFlag, PriceFlag, lake_root, price_of
from steptax.app.commands.output import console, show, table_of
from steptax.app.compute.alerting import US_PER_S, Change
from steptax.app.errors import InputError, NotFoundError, UserError
from steptax.app.format import format_moment
from steptax.app.views.alert_list import told_text
from steptax.app.views.alerting import burn_readings, readings
from steptax.app.views.workspace import open_workspace

RulesFlag = Annotated[
    Path | None, typer.Option("--rules", metavar="FILE", help=f"else {RULES_FILE} in the lake")
]
StateFlag = Annotated[
    Path | None, typer.Option("--state", metavar="FILE", help=f"else {STATE_FILE} in the lake")
]

alerts = typer.Typer(
    help="Rules over running jobs and error budgets: who is told when a limit is passed, and when "
    "it is over.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(alerts, name="alerts")


def _rules(flag: Path | None, lake: Path | None) -> Rules:
    return read_rules(flag if flag is not None else lake_root(lake) / RULES_FILE)


def _store(flag: Path | None, lake: Path | None) -> AlertStore:
    path = flag if flag is not None else lake_root(lake) / STATE_FILE
    if not path.parent.is_dir():
        raise NotFoundError(
            "there is no such folder", where=str(path.parent), hint="name the lake by --lake"
        )
    return AlertStore(path)


@alerts.command("run")
def run_command(
    rules: RulesFlag = None,
    state: StateFlag = None,
    every_s: Annotated[
        float, typer.Option("--every", min=1, metavar="SECONDS", help="time between rounds")
    ] = 30.0,
    once: Annotated[bool, typer.Option("--once", help="one round, for a timer or cron")] = False,
    price: PriceFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Judge running jobs and error budgets by the rules, round after round; deliver what is due."""
    root = lake_root(lake)
    store = _store(state, lake)
    known = _rules(rules, lake)
    while True:
        begin = time.monotonic()
        try:
            known = _rules(rules, lake)
        except InputError as error:
            # A file that is half written must not end a watch: the rules before go on.
            if once:
                raise
            console.print(f"rules not read, those before hold: {error}")
        ws = open_workspace(root)
        found = [*readings(ws, price=price_of(price))]
        if any(rule.is_of_scopes for rule in known.rules):
            found += burn_readings(ws, price=price_of(price))
        done = one_round(store, known, found, _now_us(), clock=_now_us)
        if once or done.fired or done.cleared or done.sent or done.failed or done.problems:
            show(vars(done), as_json=as_json, text=lambda done=done: _say(done))  # type: ignore[misc]
        if once:
            store.close()
            return
        time.sleep(max(0.0, every_s - (time.monotonic() - begin)))


def _now_us() -> int:
    return time.time_ns() // 1000


def _say(done: Any) -> None:
    budgets = f"{done.scopes} error budgets, " if done.scopes else ""
    console.print(
        f"{done.jobs} running, {budgets}{done.fired} fired, {done.cleared} cleared; messages: "
        f"{done.sent} sent, {done.failed} failed",
    )
    for problem in done.problems:
        console.print(f"not read: {problem}")


@alerts.command("list")
def list_command(
    state: StateFlag = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="newest alerts")] = 20,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Alerts, open ones first, what became of their messages, and what is muted."""
    store = _store(state, lake)
    found, mutes = store.alerts(limit), [vars(m) for m in store.mutes()]
    store.close()
    show(
        {"alerts": found, "mutes": mutes},
        as_json=as_json,
        text=lambda: _print(found, mutes),
    )


def _print(found: list[dict[str, Any]], mutes: list[dict[str, Any]]) -> None:
    rows = [
        (
            a["rule"],
            a["job"],
            a["severity"],
            format_moment(a["fired_us"]),
            "open" if a["cleared_us"] is None else format_moment(a["cleared_us"]),
            told_text(a),
        )
        for a in found
    ]
    names = ("rule", "job", "severity", "fired", "cleared", "told")
    console.print(table_of("Alerts", names, rows))
    for mute in mutes:
        if mute["ended_us"] is None:
            until = mute["until_us"]
            console.print(
                f"mute {mute['id']}: rules {mute['rule']}, jobs {mute['job']}, "
                f"{'no end' if until is None else f'until {format_moment(until)}'}: "
                f"{mute['reason']} ({mute['owner']})",
            )


@alerts.command("mute")
def mute_command(
    reason: Annotated[str, typer.Option("--reason", help="why; it is kept and shown")],
    rule: Annotated[str, typer.Option("--rule", metavar="PATTERN", help="rules")] = "*",
    job: Annotated[str, typer.Option("--job", metavar="PATTERN", help="jobs")] = "*",
    hours: Annotated[
        float | None, typer.Option("--hours", min=0.001, help="how long; else until unmuted")
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="who; else your login")] = None,
    state: StateFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Silence new alerts, with a reason and an owner; they are still recorded."""
    if not reason.strip():
        raise UserError("a mute needs its reason", where="--reason", hint="say why")
    now_us = _now_us()
    store = _store(state, lake)
    number = store.mute(
        rule=rule,
        job=job,
        reason=reason.strip(),
        owner=owner or getpass.getuser(),
        from_us=now_us,
        until_us=None if hours is None else now_us + int(hours * 3600 * US_PER_S),
    )
    store.close()
    show(
        {"mute": number},
        as_json=as_json,
        text=lambda: console.print(f"mute {number} holds; steptax alerts unmute {number} ends it"),
    )


@alerts.command("unmute")
def unmute_command(
    number: Annotated[int, typer.Argument(help="number of the mute, as alerts list shows it")],
    state: StateFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """End a mute."""
    store = _store(state, lake)
    store.unmute(number, _now_us())
    store.close()
    show(
        {"mute": number},
        as_json=as_json,
        text=lambda: console.print(f"mute {number} is over"),
    )


@alerts.command("test")
def try_command(
    channel: Annotated[str, typer.Argument(help="channel of the rules")],
    rules: RulesFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Send one message that says it is a test, and tell whether it arrived."""
    known = _rules(rules, lake)
    if channel not in known.channels:
        raise NotFoundError(
            f"there is no channel {channel!r}",
            where="alerts test",
            hint=f"channels are {', '.join(known.channels) or 'none'}",
        )
    now_us = _now_us()
    message = Message(
        key=f"test-{now_us}",
        channel=channel,
        change=Change.FIRED,
        attempts=1,
        rule="test",
        job="none",
        severity="info",
        metric="none",
        value=None,
        text="This is a test: nothing is wrong.",
        fired_us=now_us,
        cleared_us=None,
    )
    failure = send(known.channels[channel], message)
    if failure is not None:
        raise UserError(
            f"the message did not arrive: {failure.reason}",
            where=channel,
            hint="check address, secret and network",
        )
    show({"sent": True}, as_json=as_json, text=lambda: console.print("sent"))


@alerts.command("example")
def example_command(as_json: JsonFlag = False) -> None:
    """Print rules to begin with: save them as alerts.toml in the lake."""
    show({"toml": EXAMPLE}, as_json=as_json, text=lambda: console.print(EXAMPLE))
