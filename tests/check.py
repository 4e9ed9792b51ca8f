"""The whole check: format, lint, types, import contracts, tests. Stops at the first failure.

Arguments go to pytest: ``python3 run.py test -k lake``. With ``--fast`` only pytest runs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

STEPS: tuple[tuple[str, list[str]], ...] = (
    ("format", [str(BIN / "ruff"), "format", "--check", "--quiet", "."]),
    ("lint", [str(BIN / "ruff"), "check", "--quiet", "."]),
    ("types", [str(BIN / "mypy"), "--no-error-summary"]),
    ("import contracts", [str(BIN / "lint-imports")]),
)


def main(arguments: list[str]) -> int:
    """Run every step; the exit code of the first that fails."""
    fast = "--fast" in arguments
    arguments = [a for a in arguments if a != "--fast"]
    steps = () if fast else STEPS
    for name, command in (*steps, ("tests", [sys.executable, "-m", "pytest", "-q", *arguments])):
        begin = time.monotonic()
        sys.stdout.write(f"== {name}\n")
        sys.stdout.flush()
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        sys.stdout.write(
            f"== {name}: {'ok' if code == 0 else 'FAILED'} ({time.monotonic() - begin:.0f} s)\n"
        )
        sys.stdout.flush()
        if code:
            return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
