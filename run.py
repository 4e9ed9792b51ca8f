#!/usr/bin/env python3
"""One command on a fresh machine: makes the environment, then runs what was asked.

python3 run.py demo [...]    a real local job and its dashboard
python3 run.py test [...]    the whole check: format, lint, types, import contracts, tests
python3 run.py check         the same
python3 run.py dev           only makes the environment that the check and `make docs` need
python3 run.py ANYTHING      is `steptax ANYTHING`

Needs Python 3.11 or newer and nothing else. Only the standard library is used here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = Path(os.environ.get("STEPTAX_VENV", ROOT / ".venv"))
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")


def fail(message: str) -> None:
    """Print and leave with the exit code of a user's mistake."""
    print(f"run.py: {message}", file=sys.stderr)
    raise SystemExit(2)


def stamp(extra: str) -> str:
    """Changes when the environment must be made anew."""
    digest = hashlib.sha256(f"{extra} {sys.version_info[:2]} {ROOT}".encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def mark_of(extra: str) -> Path:
    """File that says which set was installed, and of which project files."""
    return VENV / f".steptax-{extra or 'run'}"


def is_made(extra: str) -> bool:
    """Whether the set ``extra`` is installed as the project files want it now."""
    mark = mark_of(extra)
    return mark.exists() and mark.read_text() == stamp(extra)


def make_environment(extra: str) -> None:
    """Create the virtual environment and install into it, unless that was done already."""
    # The development set holds everything that running needs.
    if is_made(extra) or is_made("dev"):
        return
    print("run.py: making the environment (once, under a minute) ...", file=sys.stderr, flush=True)
    uv = shutil.which("uv")
    if not PYTHON.exists():
        command = [uv, "venv", "-q", "--python", sys.executable, str(VENV)] if uv else None
        command = command or [sys.executable, "-m", "venv", str(VENV)]
        if subprocess.run(command, check=False).returncode:
            fail("no virtual environment; on Debian or Ubuntu: apt-get install python3-venv")
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    if not uv:
        # uv installs the same set several times faster; pip does it when uv cannot be had.
        quiet = [str(PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        if subprocess.run([*quiet, "uv"], check=False).returncode == 0:
            uv = str(BIN / ("uv.exe" if os.name == "nt" else "uv"))
    constraints = ["-c", str(ROOT / "constraints.txt")]
    done = 1
    if uv:
        done = subprocess.run(
            [uv, "pip", "install", "-q", "--python", str(PYTHON), *constraints, "-e", target],
            check=False,
        ).returncode
    if done:
        done = subprocess.run(
            [str(PYTHON), "-m", "pip", "install", "-q", *constraints, "-e", target], check=False
        ).returncode
    if done:
        fail("installing failed; the lines above say why (is a package index reachable?)")
    mark_of(extra).write_text(stamp(extra))


def main(arguments: list[str]) -> int:
    """Make the environment, then become the asked command."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this file is what an older Python runs first
        fail(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}")
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(__doc__)
        return 0
    if arguments == ["dev"]:
        make_environment("dev")
        return 0
    if arguments[0] in {"test", "check"}:
        make_environment("dev")
        command = [str(PYTHON), str(ROOT / "tests" / "check.py"), *arguments[1:]]
    else:
        make_environment("")
        command = [str(PYTHON), "-m", "steptax.app.cli", *arguments]
    if os.name == "nt":
        return subprocess.run(command, check=False).returncode
    os.execv(command[0], command)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
