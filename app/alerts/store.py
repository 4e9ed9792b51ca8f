"""What alerts remember: standings, alerts, mutes, and each message that is to be delivered once.

One SQLite file. Everything that changes it is one transaction, so that any number of processes may
evaluate and deliver side by side: a change is seen once, and a message is claimed by one of them.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from steptax.app.alerts.records import Message, Mute
from steptax.app.compute.alerting import Change, Phase, Standing
from steptax.app.errors import InputError, NotFoundError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS standing (
  rule TEXT, job TEXT, phase TEXT NOT NULL, since_us INTEGER NOT NULL, alert INTEGER,
  PRIMARY KEY (rule, job));
CREATE TABLE IF NOT EXISTS alert (
  id INTEGER PRIMARY KEY, rule TEXT NOT NULL, job TEXT NOT NULL, severity TEXT NOT NULL,
  metric TEXT NOT NULL, value REAL, text TEXT NOT NULL, fired_us INTEGER NOT NULL,
  cleared_us INTEGER, mute INTEGER);
CREATE TABLE IF NOT EXISTS message (
  key TEXT PRIMARY KEY, alert INTEGER NOT NULL, change TEXT NOT NULL, channel TEXT NOT NULL,
  state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, next_us INTEGER NOT NULL,
  last_error TEXT, sent_us INTEGER);
CREATE TABLE IF NOT EXISTS itself (id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS mute (
  id INTEGER PRIMARY KEY, rule TEXT NOT NULL, job TEXT NOT NULL, reason TEXT NOT NULL,
  owner TEXT NOT NULL, from_us INTEGER NOT NULL, until_us INTEGER, ended_us INTEGER);
"""
#: Where a lake keeps them unless somebody says otherwise.
STATE_FILE = "alerts.sqlite3"
#: How long a claimed message is its sender's: longer than any attempt can take.
LEASE_US = 600_000_000
WAITING, SENDING, SENT, GIVEN_UP = "waiting", "sending", "sent", "given up"


class AlertStore:
    """The file; made where there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._db.row_factory = sqlite3.Row
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
            with self.change():
                self._id = self._itself()
        except sqlite3.Error as error:
            raise InputError(
                f"cannot hold alerts: {error}", where=str(path), hint="name another file by --state"
            ) from None

    def _itself(self) -> str:
        """What tells this file's messages from those of every other."""
        row = self._one("SELECT id FROM itself")
        if row is not None:
            return str(row["id"])
        made = uuid.uuid4().hex
        self._db.execute("INSERT INTO itself (id) VALUES (?)", (made,))
        return made

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    @contextmanager
    def change(self) -> Iterator[None]:
        """One transaction that no other process is inside of."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def standing(self, rule: str, job: str) -> Standing | None:
        """Where a rule stands for a job."""
        row = self._one("SELECT phase, since_us FROM standing WHERE rule=? AND job=?", rule, job)
        return None if row is None else Standing(Phase(row["phase"]), row["since_us"])

    def keep(self, rule: str, job: str, standing: Standing) -> None:
        """Remember where a rule stands for a job."""
        self._db.execute(
            "INSERT INTO standing (rule, job, phase, since_us) VALUES (?,?,?,?) "
            "ON CONFLICT (rule, job) DO UPDATE SET phase=excluded.phase, "
            "since_us=excluded.since_us",
            (rule, job, standing.phase.value, standing.since_us),
        )

    def forget(self, rule: str, job: str) -> None:
        """A rule that no longer watches a job stands nowhere."""
        self._db.execute("DELETE FROM standing WHERE rule=? AND job=?", (rule, job))

    def fired(
        self,
        *,
        rule: str,
        job: str,
        severity: str,
        metric: str,
        value: float,
        text: str,
        at_us: int,
        channels: tuple[str, ...],
    ) -> int:
        """A new alert; its messages wait, or none where it is muted."""
        mute = self.muted(rule, job, at_us)
        cursor = self._db.execute(
            "INSERT INTO alert (rule, job, severity, metric, value, text, fired_us, mute) "
            "VALUES (?,?,?,?,?,?,?,?)",
            (rule, job, severity, metric, value, text, at_us, None if mute is None else mute.id),
        )
        alert = int(cursor.lastrowid or 0)
        self._db.execute("UPDATE standing SET alert=? WHERE rule=? AND job=?", (alert, rule, job))
        if mute is None:
            self._tell(alert, Change.FIRED, channels, at_us)
        return alert

    def cleared(self, *, rule: str, job: str, at_us: int) -> None:
        """The open alert is over: who was told that it fired is told that, nobody else."""
        row = self._one("SELECT alert FROM standing WHERE rule=? AND job=?", rule, job)
        if row is None or row["alert"] is None:
            return
        alert = row["alert"]
        self._db.execute("UPDATE alert SET cleared_us=? WHERE id=?", (at_us, alert))
        told = self._db.execute(
            "SELECT channel FROM message WHERE alert=? AND change=?", (alert, Change.FIRED.value)
        )
        self._tell(alert, Change.CLEARED, tuple(r["channel"] for r in told), at_us)

    def _tell(self, alert: int, change: Change, channels: tuple[str, ...], at_us: int) -> None:
        self._db.executemany(
            "INSERT OR IGNORE INTO message (key, alert, change, channel, state, next_us) "
            "VALUES (?,?,?,?,?,?)",
            [
                (f"{self._id}-{alert}-{change.value}-{c}", alert, change.value, c, WAITING, at_us)
                for c in channels
            ],
        )

    def claim(self, due_us: int, at_us: int) -> Message | None:
        """The message that was due first by ``due_us``, now this process's; None where none is.

        It is the claimer's for a lease from ``at_us`` on, the present moment. One whose sender
        died is due again when its lease is over, under the same key.
        """
        with self.change():
            row = self._one(
                "SELECT m.key, m.channel, m.change, m.attempts, a.* FROM message m "
                "JOIN alert a ON a.id = m.alert WHERE m.state IN (?, ?) AND m.next_us <= ? "
                "ORDER BY m.next_us, m.alert, m.change DESC LIMIT 1",
                WAITING,
                SENDING,
                due_us,
            )
            if row is None:
                return None
            self._db.execute(
                "UPDATE message SET state=?, attempts=attempts+1, next_us=? WHERE key=?",
                (SENDING, at_us + LEASE_US, row["key"]),
            )
        return Message(
            key=row["key"],
            channel=row["channel"],
            change=Change(row["change"]),
            attempts=row["attempts"] + 1,
            rule=row["rule"],
            job=row["job"],
            severity=row["severity"],
            metric=row["metric"],
            value=row["value"],
            text=row["text"],
            fired_us=row["fired_us"],
            cleared_us=row["cleared_us"],
        )

    def silence(self, message: Message, mute: Mute) -> None:
        """A mute came before the message could be sent: the alert is muted like any other."""
        with self.change():
            alert = self._one("SELECT alert FROM message WHERE key=?", message.key)
            if alert is not None:
                self._db.execute("DELETE FROM message WHERE key=?", (message.key,))
                self._db.execute("UPDATE alert SET mute=? WHERE id=?", (mute.id, alert["alert"]))

    def told_late(self, at_us: int, channels: Mapping[str, tuple[str, ...]]) -> None:
        """Tell of open alerts that fired under a mute which is over; ``channels`` are by rule."""
        with self.change():
            rows = self._db.execute(
                "SELECT id, rule, job FROM alert WHERE cleared_us IS NULL AND mute IS NOT NULL"
            ).fetchall()
            for row in rows:
                if self.muted(row["rule"], row["job"], at_us) is None:
                    self._db.execute("UPDATE alert SET mute=NULL WHERE id=?", (row["id"],))
                    self._tell(row["id"], Change.FIRED, channels.get(row["rule"], ()), at_us)

    def sent(self, key: str, at_us: int) -> None:
        """The message arrived."""
        self._db.execute(
            "UPDATE message SET state=?, sent_us=?, last_error=NULL WHERE key=?", (SENT, at_us, key)
        )

    def failed(self, key: str, error: str, next_us: int | None) -> None:
        """The message did not arrive: to be tried again at ``next_us``, or never (None)."""
        state = WAITING if next_us is not None else GIVEN_UP
        self._db.execute(
            "UPDATE message SET state=?, last_error=?, next_us=? WHERE key=?",
            (state, error[:500], next_us or 0, key),
        )

    def mute(
        self, *, rule: str, job: str, reason: str, owner: str, from_us: int, until_us: int | None
    ) -> int:
        """Silence what matches both patterns; its number."""
        cursor = self._db.execute(
            "INSERT INTO mute (rule, job, reason, owner, from_us, until_us) VALUES (?,?,?,?,?,?)",
            (rule, job, reason, owner, from_us, until_us),
        )
        return int(cursor.lastrowid or 0)

    def unmute(self, number: int, at_us: int) -> None:
        """End a mute; NotFoundError where none of that number holds."""
        done = self._db.execute(
            "UPDATE mute SET ended_us=? WHERE id=? AND ended_us IS NULL", (at_us, number)
        )
        if done.rowcount == 0:
            raise NotFoundError(
                f"no mute {number} holds", where="unmute", hint="steptax alerts list shows them"
            )

    def mutes(self) -> list[Mute]:
        """All, the newest first."""
        rows = self._db.execute("SELECT * FROM mute ORDER BY id DESC")
        return [Mute(**dict(row)) for row in rows]

    def muted(self, rule: str, job: str, at_us: int) -> Mute | None:
        """The mute that silences this rule of this job now."""
        return next((m for m in self.mutes() if m.holds(rule, job, at_us)), None)

    def open_standings(self) -> list[tuple[str, str]]:
        """Rule and job of every alert that is open."""
        rows = self._db.execute(
            "SELECT rule, job FROM standing WHERE phase IN (?, ?) ORDER BY rule, job",
            (Phase.FIRING.value, Phase.CLEARING.value),
        )
        return [(row["rule"], row["job"]) for row in rows]

    def alerts(self, limit: int = 100) -> list[dict[str, Any]]:
        """The newest alerts, open ones first, with the messages of each."""
        rows = self._db.execute(
            "SELECT a.*, m.reason AS mute_reason, m.owner AS mute_owner FROM alert a "
            "LEFT JOIN mute m ON m.id = a.mute "
            "ORDER BY a.cleared_us IS NOT NULL, a.fired_us DESC LIMIT ?",
            (limit,),
        ).fetchall()
        out = []
        for row in rows:
            messages = self._db.execute(
                "SELECT channel, change, state, attempts, last_error, sent_us FROM message "
                "WHERE alert=? ORDER BY channel, change DESC",
                (row["id"],),
            )
            out.append(dict(row) | {"messages": [dict(m) for m in messages]})
        return out

    def _one(self, text: str, *values: object) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._db.execute(text, values).fetchone()
        return row
