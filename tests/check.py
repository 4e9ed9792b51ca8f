"""The whole check: format, lint, types, import contracts, tests. Stops at the first failure.

Arguments go to pytest: ``python3 run.py test -k lake``. With ``--fast`` only pytest runs. Without
arguments every connector also reads thousands of damaged inputs, in a process beside the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

STEPS: tuple[tuple[str, list[str]], ...] = (
    ("format", [str(BIN / "ruff"), "format", "--check", "--quiet", "."]),
    ("lint", [str(BIN / "ruff"), "check", "--quiet", "."]),
    ("types", [str(BIN / "mypy"), "--no-error-summary"]),
    ("import contracts", [str(BIN / "lint-imports")]),
)


PYTEST = [sys.executable, "-m", "pytest", "-q"]
DAMAGE = "tests/connectors/test_mutations.py"
#: Damaged inputs of each connector in the whole check; a run of that test alone makes fewer.
DAMAGED_INPUTS = "5000"


def main(arguments: list[str]) -> int:
    """Run every step; the exit code of the first that fails."""
    fast = "--fast" in arguments
    arguments = [a for a in arguments if a != "--fast"]
    for name, command in () if fast else STEPS:
        if code := _step(name, command):
            return code
    if arguments or fast:
        return _step("tests", [*PYTEST, *arguments])
    with _damage() as damage:
        if code := _step("tests", [*PYTEST, f"--ignore={DAMAGE}"]):
            return code
        return damage()


def _step(name: str, command: list[str]) -> int:
    begin = time.monotonic()
    sys.stdout.write(f"== {name}\n")
    sys.stdout.flush()
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    sys.stdout.write(
        f"== {name}: {'ok' if code == 0 else 'FAILED'} ({time.monotonic() - begin:.0f} s)\n"
    )
    sys.stdout.flush()
    return code


@contextmanager
def _damage() -> Iterator[Callable[[], int]]:
    """Read damaged inputs at low priority meanwhile; gives what waits for the end and tells it."""
    yielding = ["nice", "-n", "10"] if shutil.which("nice") else []
    command = [*yielding, *PYTEST, DAMAGE, "-p", "no:cacheprovider"]
    environment = {**os.environ, "STEPTAX_FUZZ_INPUTS": DAMAGED_INPUTS}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.STDOUT
        )

        def end() -> int:
            code = process.wait()
            said.seek(0)
            state = "ok" if code == 0 else "FAILED"
            sys.stdout.write(f"== damaged inputs\n{said.read()}== damaged inputs: {state}\n")
            return code

        try:
            yield end
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
