"""Where samples of devices stop: stretches of which nothing is known, from the roll-up by minutes.

A gap is never filled and never told twice: a source that catches up stores what was missing, and
then there is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steptax.app.format import format_age, format_moment
from steptax.app.schema.rollups import DAY_US
from steptax.app.views.health_models import Gap
from steptax.app.views.workspace import Workspace

#: Gaps are looked for in so much time before the newest sample.
LOOKED_US = DAY_US
#: A source of which nothing came for longer is one that was imported, not one that is silent.
_LIVE_US = DAY_US
#: What a server stores late is not missing yet.
_SETTLE_US = 60_000_000
_NAMED = 3


def sample_gaps(ws: Workspace, *, now_us: int) -> tuple[Gap, ...]:
    """Gaps in the day up to the newest sample (or up to now, of live sources), oldest first."""
    if not ws.lake.segments("device_samples"):
        return ()
    newest_us = ws.engine.run("sampled_span").to_pylist()[0]["newest_us"]
    if newest_us is None:
        return ()
    is_live = newest_us > now_us - _LIVE_US
    rows = ws.engine.run(
        "sample_gaps",
        first_us=newest_us - LOOKED_US,
        last_us=newest_us,
        now_us=max(newest_us, now_us - _SETTLE_US),
        is_live=is_live,
    ).to_pylist()
    return tuple(_joined(rows, open_from_us=max(newest_us, now_us - _SETTLE_US)))


def gap_warnings(gaps: Iterable[Gap]) -> tuple[str, ...]:
    """What is said of them above the table."""
    found = list(gaps)
    if not found:
        return ()
    hours = sum(gap.without_us for gap in found) / 3.6e9
    longest = max(found, key=lambda gap: gap.length_us)
    length = format_age(longest.length_us / 1e6)
    start, end = format_moment(longest.start_us), format_moment(longest.end_us)
    since = "and goes on" if longest.is_open else f"until {end}"
    when = f"begins at {start} {since}" if longest.is_exact else f"lies between {start} and {end}"
    return (
        f"samples of devices are missing in {len(found):,} "
        f"{'stretch' if len(found) == 1 else 'stretches'} of the last day, {hours:,.2f} "
        f"device-hours in all: nothing is known of them. The longest, {length} of {longest.where}, "
        f"{when}",
    )


def _joined(rows: list[dict[str, Any]], *, open_from_us: int) -> Iterable[Gap]:
    """Gaps of devices that overlap are one: what silenced one may have silenced all."""
    group: list[dict[str, Any]] = []
    end_us = -1
    for row in rows:
        if group and row["start_us"] > end_us:
            yield _gap(group, open_from_us)
            group = []
        group.append(row)
        end_us = max(end_us, row["end_us"]) if len(group) > 1 else row["end_us"]
    if group:
        yield _gap(group, open_from_us)


def _gap(rows: list[dict[str, Any]], open_from_us: int) -> Gap:
    hosts = sorted({row["host"] for row in rows})
    devices = {(row["host"], row["gpu_uuid"]) for row in rows}
    more = f" and {len(hosts) - _NAMED:,} more hosts" if len(hosts) > _NAMED else ""
    end_us = max(row["end_us"] for row in rows)
    count = f"{len(devices):,} {'device' if len(devices) == 1 else 'devices'}"
    return Gap(
        min(row["start_us"] for row in rows),
        end_us,
        len(devices),
        len(hosts),
        f"{count} of {', '.join(hosts[:_NAMED])}{more}",
        sum(row["without_us"] for row in rows),
        end_us >= open_from_us,
        not any(row["is_within"] for row in rows),
    )
