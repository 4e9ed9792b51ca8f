"""The whole check: format, lint, types, import contracts, tests. Stops at the first failure.

Arguments go to pytest: ``python3 run.py test -k lake``. With ``--fast`` only pytest runs. Without
arguments the folders of tests run beside each other, and every connector also reads thousands of
damaged inputs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

STEPS: tuple[tuple[str, list[str]], ...] = (
    ("format", [str(BIN / "ruff"), "format", "--check", "--quiet", "."]),
    ("lint", [str(BIN / "ruff"), "check", "--quiet", "."]),
    ("types", [str(BIN / "mypy"), "--no-error-summary"]),
    ("import contracts", [str(BIN / "lint-imports")]),
)

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
DAMAGE = "tests/connectors/test_mutations.py"
#: Damaged inputs of each connector in the whole check; a run of that test alone makes more.
DAMAGED_INPUTS = "600"
#: Folders whose tests run by themselves, the longest first, and in how many parts; all others run
#: together.
LONG = {"browser": 1, "app": 2, "connectors": 1, "pages": 1}
#: Many tests wait for something to happen, so three keep two cores busy; more would disturb those
#: that watch a live page. Damaged inputs wait for nobody and nobody waits for them: they run beside
#: these, with what time is left over.
BESIDE = 3


def main(arguments: list[str]) -> int:
    """Run every step; the exit code of the first that fails."""
    fast = "--fast" in arguments
    arguments = [a for a in arguments if a != "--fast"]
    for name, command in () if fast else STEPS:
        if code := _step(name, command):
            return code
    if arguments or fast:
        return _step("tests", [*PYTEST, *arguments])
    return _beside(_parts())


def _parts() -> dict[str, list[str]]:
    """The tests in parts that know nothing of each other: name and what pytest is given."""
    folders = sorted(p.name for p in (ROOT / "tests").iterdir() if any(p.glob("test_*.py")))
    rest = [f"tests/{name}" for name in folders if name not in LONG]
    parts: dict[str, list[str]] = {}
    for name, number in LONG.items():
        files = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests" / name).glob("test_*.py"))
        for part in range(number):
            title = f"tests/{name}" + (f" ({part + 1} of {number})" if number > 1 else "")
            parts[title] = [f for f in files[part::number] if f != DAMAGE]
    return {"damaged inputs": [DAMAGE], **parts, " ".join(rest): rest}


def _beside(parts: dict[str, list[str]]) -> int:
    """Run ``parts``, a few at a time; each one's output when it ends. 0 where all passed."""
    yielding = ["nice", "-n", "19"] if shutil.which("nice") else []
    running: list[subprocess.Popen[str]] = []

    def run(name: str, given: list[str]) -> tuple[str, int, str, float]:
        begin = time.monotonic()
        damage = given == [DAMAGE]
        process = subprocess.Popen(
            [*(yielding if damage else []), *PYTEST, "--durations=8", *given],
            cwd=ROOT,
            env={**os.environ, "STEPTAX_FUZZ_INPUTS": DAMAGED_INPUTS} if damage else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append(process)
        said, _ = process.communicate()
        return name, process.returncode, said, time.monotonic() - begin

    worst = 0
    pool, aside = ThreadPoolExecutor(BESIDE), ThreadPoolExecutor(1)
    try:
        jobs = [
            (aside if given == [DAMAGE] else pool).submit(run, name, given)
            for name, given in parts.items()
        ]
        for job in as_completed(jobs):
            name, code, said, took_s = job.result()
            state = "ok" if code == 0 else "FAILED"
            sys.stdout.write(f"== {name}\n{said}== {name}: {state} ({took_s:.0f} s)\n")
            sys.stdout.flush()
            worst = worst or code
    finally:
        for workers in (pool, aside):
            workers.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.kill()
    return worst


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


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
