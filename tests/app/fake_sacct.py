"""A stand-in for Slurm's ``sacct``: recorded jobs, as accounting would tell them at some moment.

The folder of FAKE_SACCT holds ``jobs.psv`` (26 fields of real output, UTC), ``now`` (ISO 8601) and
``mode``. Of a recorded job it says what was known then: it waits, runs, or is over. Every call is
added to ``calls``.
"""

import datetime as dt
import json
import os
import sys
import time
import zoneinfo
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(os.environ["FAKE_SACCT"])
_NAMES = (
    "jobid|jobidraw|cluster|partition|qos|account|group|gid|user|uid|submit|eligible|start|end|"
    "elapsed|exitcode|state|nnodes|ncpus|reqcpus|reqmem|reqtres|alloctres|timelimit|nodelist|"
    "jobname"
)
NAMES = _NAMES.split("|")
FLAGS = {"--allusers", "--allocations", "--duplicates", "--parsable2"}
UTC = dt.UTC


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def options() -> dict[str, str]:
    found: dict[str, str] = {}
    words = iter(sys.argv[1:])
    for word in words:
        if word not in FLAGS:
            found[word] = next(words)
    return found


def moment(text: str, zone: dt.tzinfo) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=zone)


def told(
    job: dict[str, str], now: dt.datetime, shown: Callable[[dt.datetime], str]
) -> dict[str, str] | None:
    """What accounting says of a recorded job at ``now``; None before it was submitted."""
    submit, start, end = (moment(job[name], UTC) for name in ("submit", "start", "end"))
    if submit > now:
        return None
    one = dict(job, submit=shown(submit), start="Unknown", end="Unknown", elapsed="00:00:00")
    if start > now:
        return dict(one, state="PENDING", alloctres="")
    over = end <= now
    seconds = int(((end if over else now) - start).total_seconds())
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    one |= {"start": shown(start), "elapsed": f"{days}-{clock}" if days else clock}
    return dict(one, end=shown(end)) if over else dict(one, state="RUNNING")


def main() -> None:
    with (FOLDER / "calls").open("a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    mode = (FOLDER / "mode").read_text().strip()
    if mode == "fail":
        sys.exit("sacct: error: slurm_persist_conn_open_without_init: Connection refused")
    if mode == "complain":
        sys.stderr.write("sacct: error: Problem talking to the database\n")
    if mode == "hang":
        time.sleep(600)
    if mode == "garbage":
        say("<html>504 Gateway Time-out</html>")
        return
    asked = options()
    # A wrapper that hides the environment of who calls it: local times without an offset.
    hidden = mode.startswith("zone ")
    zone = zoneinfo.ZoneInfo(mode.split()[1] if hidden else os.environ.get("TZ") or "UTC")
    form = "%Y-%m-%dT%H:%M:%S" if hidden else os.environ["SLURM_TIME_FORMAT"]
    now = moment((FOLDER / "now").read_text().strip(), UTC)
    fields = asked["--format"].lower().split(",")
    say("|".join(asked["--format"].split(",")))
    for line in (FOLDER / "jobs.psv").read_text().splitlines():
        raw = dict(zip(NAMES, line.split("|", 25), strict=True))
        job = told(raw, now, lambda t: f"{t.astimezone(zone):{form}}")
        if job is None:
            continue
        if "--jobs" in asked:
            if job["jobid"] not in asked["--jobs"].split(","):
                continue
        else:
            first = moment(asked["--starttime"], zone)
            last = moment(asked["--endtime"], zone)
            late = moment(raw["end"], UTC) if job["end"] != "Unknown" else now
            if late < first or moment(raw["submit"], UTC) > last:
                continue
        say("|".join(job[name] for name in fields))


main()
