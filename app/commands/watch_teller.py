"""What ``steptax watch`` prints of each commit: a line for people, or JSON."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import orjson

from steptax.app.commands.output import console
from steptax.app.watch import Refused, Stored, Told
from steptax.app.watch_devices import DevicesTold

#: What a watch waits for (room on a disk, a server) is said again this often.
REMIND_S = 60.0


class Teller:
    """Prints one line per commit: for people, or JSON."""

    def __init__(self, *, as_json: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._as_json = as_json
        self._total: Counter[str] = Counter()
        self._rejected = 0
        self._commits = 0
        self._idle = False
        self._spoken = False
        self._waits_for = ""
        self._waited_s = 0.0

    def tell(self, found: Stored | Refused | Told) -> None:
        """Say what was stored, or why a file was not."""
        self._idle = False
        if isinstance(found, Told):
            self._json(
                {
                    "ok": True,
                    "data": {"commit": None, "source": str(found.path), "accepted": {}},
                    "warnings": list(found.notes),
                }
            )
            for note in found.notes:
                self.say(f"{found.path.name}: {note}")
            return
        if isinstance(found, Refused):
            error = found.error
            self._waits_for = error.message if found.waits else self._waits_for
            self._waited_s = self._clock()
            body = {
                "kind": error.kind,
                "message": error.message,
                "where": error.where,
                "hint": error.hint,
            }
            self._json({"ok": False, "error": body})
            self.say(f"{found.path.name}: not read: {error.message}")
            return
        self._waits_for = ""
        result = found.result
        rejected = sum(result.rejected.values())
        self._total.update(result.accepted)
        self._rejected += rejected
        self._commits += 1
        notes = [*found.notes, *result.notes]
        self._json(
            {
                "ok": True,
                "data": {
                    "commit": result.ingest_id,
                    "source": str(found.path),
                    "accepted": result.accepted,
                    "rejected": result.rejected,
                    "stored_before": result.stored_before,
                    "conflicting": result.conflicting,
                    "total": dict(self._total),
                    "rejects": list(result.first_rejects),
                    "job_ids": list(result.job_ids),
                    "lag_s": round(found.lag_s, 3),
                    "behind_bytes": found.behind_bytes,
                },
                "warnings": notes,
            }
        )
        gained = ", ".join(f"{name} +{count:,}" for name, count in result.accepted.items() if count)
        parts = [f"{found.path.name}: {gained or 'nothing new'}"]
        if rejected:
            parts.append(f"{rejected:,} rejected")
        before = sum(result.stored_before.values())
        if before:
            parts.append(f"{before:,} stored before")
        conflicting = sum(result.conflicting.values())
        if conflicting:
            parts.append(f"{conflicting:,} of them with other values")
        parts.append(f"lag {found.lag_s:.1f} s")
        if found.behind_bytes:
            parts.append(f"{found.behind_bytes:,} bytes to read")
        self.say(", ".join(parts))
        for note in notes:
            self.say(f"note: {note}")

    def devices(self, told: DevicesTold) -> None:
        """Say what was stored of this node's devices, and what is wrong with them."""
        self._idle = False
        self._total.update({"device_samples": told.rows})
        self._commits += bool(told.rows)
        self._json(
            {
                "ok": told.fault is None,
                "data": {
                    "commit": None,
                    "source": told.source,
                    "accepted": {"device_samples": told.rows},
                    "held": told.held,
                    "total": dict(self._total),
                },
                "warnings": list(told.notes),
            }
            if told.fault is None
            else {
                "ok": False,
                "error": {
                    "kind": "input",
                    "message": told.fault,
                    "where": told.source,
                    "hint": f"{told.held:,} samples are held and tried again",
                },
            }
        )
        if told.fault is not None:
            self.say(f"not stored: {told.fault}; {told.held:,} samples are held")
        elif told.rows:
            self.say(f"{told.source}: device_samples +{told.rows:,}")
        for note in told.notes:
            self.say(f"note: {note}")

    def idle(self) -> None:
        """Say once that there is nothing new, and each minute what is waited for."""
        if self._waits_for:
            if self._clock() - self._waited_s >= REMIND_S:
                self._waited_s = self._clock()
                self.say(f"still waiting: {self._waits_for}")
            return
        if not self._idle:
            self.say("nothing new; waiting")
        self._idle = True

    def leave(self, *, once: bool) -> None:
        """The last line: what was stored in all."""
        total = ", ".join(f"{count:,} {name}" for name, count in self._total.items() if count)
        self.say(f"stored {total or 'nothing'} in {self._commits:,} commits")
        if once and not self._spoken:
            nothing: dict[str, Any] = {"commit": None, "accepted": {}, "rejected": {}, "total": {}}
            self._json({"ok": True, "data": nothing, "warnings": []})

    def say(self, text: str) -> None:
        """Print for people."""
        if not self._as_json:
            console.print(f"{datetime.now():%H:%M:%S}  {text}")

    def _json(self, body: dict[str, Any]) -> None:
        self._spoken = True
        if self._as_json:
            sys.stdout.write(orjson.dumps(body).decode() + "\n")
            sys.stdout.flush()
