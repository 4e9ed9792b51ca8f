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
from tempfile import gettempdir

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

STEPS: dict[str, list[str]] = {
    "format": [str(BIN / "ruff"), "format", "--check", "--quiet", "."],
    "lint": [str(BIN / "ruff"), "check", "--quiet", "."],
    "types": [str(BIN / "mypy"), "--no-error-summary"],
    "import contracts": [str(BIN / "lint-imports")],
}
#: Steps that run beside the tests where these run in parts; the others take a second and go first.
SLOW_STEPS = ("types", "import contracts")

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
DAMAGE = "tests/connectors/test_mutations.py"
#: Damaged inputs of each connector in the whole check; a run of that test alone makes more.
DAMAGED_INPUTS = "400"
#: Folders whose tests run by themselves, the longest first, and in how many parts; all others run
#: by themselves too, after these. Short parts, so that none is left alone at the end.
LONG = {"browser": 1, "engines": 1, "app": 6, "pages": 2, "connectors": 2}
#: Folders of few and short tests, for which to start is most of the work.
SHORT = ("docs", "hardware", "integrations", "whatif")
#: A job that runs on this machine and is told what slows it: what else runs here slows it too, so
#: nothing does.
ALONE = ("tests/browser/test_demo_live.py",)
#: Many tests wait for something to happen, so three keep two cores busy; more would disturb those
#: that watch a live page. Damaged inputs and types wait for nobody and nobody waits for them: they
#: run beside these, with what time is left over.
BESIDE, ASIDE = 3, 2


def main(arguments: list[str]) -> int:
    """Run every step; the exit code of the first that fails."""
    fast = "--fast" in arguments
    arguments = [a for a in arguments if a != "--fast"]
    in_parts = not arguments and not fast
    _keep_bytecode()
    for name, command in () if fast else STEPS.items():
        if in_parts and name in SLOW_STEPS:
            continue
        if code := _step(name, command):
            return code
    if not in_parts:
        return _step("tests", [*PYTEST, *arguments])
    aside = {name: STEPS[name] for name in SLOW_STEPS}
    aside["damaged inputs"] = [*PYTEST, "--durations=8", DAMAGE]
    beside = _beside(_parts(), aside)
    return beside or _step("tests that run alone", [*PYTEST, "--durations=8", *ALONE])


def _keep_bytecode() -> None:
    """Let hundreds of processes compile what they import once, and not each anew.

    Images of containers often forbid Python to write bytecode, so as to stay small, and then a
    process that draws a page compiles for three seconds. It goes into the environment's folder, as
    whoever forbade it may not want it beside the sources.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        kept = BIN.parent / "bytecode"
        os.environ["PYTHONPYCACHEPREFIX"] = str(kept)
        # Of programs that earlier tests wrote into temporary folders nobody has a use.
        shutil.rmtree(kept.joinpath(*Path(gettempdir()).parts[1:]), ignore_errors=True)


def _parts() -> dict[str, list[str]]:
    """The tests in parts that know nothing of each other: name and what pytest is given."""
    folders = sorted(p.name for p in (ROOT / "tests").iterdir() if any(p.glob("test_*.py")))
    parts: dict[str, list[str]] = {}
    for name, number in LONG.items():
        files = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests" / name).glob("test_*.py"))
        for part in range(number):
            title = f"tests/{name}" + (f" ({part + 1} of {number})" if number > 1 else "")
            parts[title] = [f for f in files[part::number] if f not in (DAMAGE, *ALONE)]
    short = [f"tests/{name}" for name in folders if name in SHORT]
    rest = [[f"tests/{name}"] for name in folders if name not in (*LONG, *SHORT)]
    return parts | {" ".join(part): part for part in (*rest, short)}


def _beside(parts: dict[str, list[str]], aside: dict[str, list[str]]) -> int:
    """Run ``parts`` of the tests, a few at a time, and the commands ``aside`` with what is left.

    Prints each one's output when it ends. 0 where all passed.
    """
    yielding = ["nice", "-n", "19"] if shutil.which("nice") else []
    running: list[subprocess.Popen[str]] = []

    def run(name: str, command: list[str]) -> tuple[str, int, str, str]:
        begin = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | ({"STEPTAX_FUZZ_INPUTS": DAMAGED_INPUTS} if DAMAGE in command else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append(process)
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        # What made the parts long: waiting, or work; of all its processes that have ended.
        cpu_s = used.ru_utime + used.ru_stime
        took = f"{time.monotonic() - begin:.0f} s, {cpu_s:.0f} of a processor"
        return name, process.returncode, said, took

    worst = 0
    pool, left_over = ThreadPoolExecutor(BESIDE), ThreadPoolExecutor(ASIDE)
    try:
        jobs = [left_over.submit(run, name, [*yielding, *cmd]) for name, cmd in aside.items()]
        jobs += [
            pool.submit(run, name, [*PYTEST, "--durations=8", *given])
            for name, given in parts.items()
        ]
        for job in as_completed(jobs):
            name, code, said, took = job.result()
            state = "ok" if code == 0 else "FAILED"
            sys.stdout.write(f"== {name}\n{said}== {name}: {state} ({took})\n")
            sys.stdout.flush()
            worst = worst or code
    finally:
        for workers in (pool, left_over):
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
