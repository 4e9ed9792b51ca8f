"""Every connector on every bad input there is: ``python -m tests.connectors.bad_input``.

Three kinds of bad input: the files of public problem reports (``--cases FOLDER``), each given to
every connector; the examples of all connectors, each given to every other one; and each connector's
own examples, damaged (``--damaged N`` of each). An input is read, or refused; a refusal names the
file, where in it and what was expected, and what to do. Anything else is a fault, and is printed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from steptax.app.errors import InputError
from steptax.connectors.base import Options
from steptax.connectors.registry import CONNECTORS
from tests.connectors.test_mutations import EXAMPLES, MOST_S, damaged

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Tally:
    """What became of the inputs."""

    tried: Counter[str] = field(default_factory=Counter)
    read: int = 0
    refused: int = 0
    rejected_rows: int = 0
    faults: list[str] = field(default_factory=list)

    def give(self, kind: str, path: Path, of: str) -> None:
        """Give an input to a connector."""
        self.tried[of] += 1
        signal.setitimer(signal.ITIMER_PROF, MOST_S)
        try:
            for batch in CONNECTORS[kind].read(path, Options()):
                self.rejected_rows += len(batch.rejects)
                for reject in batch.rejects:
                    if len(reject.reason) < 8:
                        self.faults.append(f"{kind} {path.name}: rejects a row with no reason")
            self.read += 1
        except InputError as error:
            self.refused += 1
            self._check(kind, path, error)
        except Exception as error:
            self.faults.append(f"{kind} {path}: {type(error).__name__}: {error}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _check(self, kind: str, path: Path, error: InputError) -> None:
        lacks = []
        if path.name not in (error.where or ""):
            lacks.append(f"the file in {error.where!r}")
        if len(error.message) < 12:
            lacks.append(f"what was expected in {error.message!r}")
        if not error.hint:
            lacks.append("what to do")
        if lacks:
            self.faults.append(f"{kind} {path.name}: the refusal lacks {', '.join(lacks)}")


def examples(kind: str) -> list[Path]:
    """Example files of a connector."""
    return [path for path in sorted(EXAMPLES.glob(f"{kind}.*")) if path.is_file()]


def case_files(cases: Path) -> list[Path]:
    """Files of the problem reports, without what they say themselves."""
    return [
        path
        for path in sorted(cases.rglob("*"))
        if path.is_file() and path.suffix != ".md" and path.stat().st_size < 8 << 20
    ]


def run(cases: Path | None, damaged_inputs: int) -> Tally:
    """Give every input to its connectors."""
    before = signal.signal(signal.SIGPROF, _ring)
    tally = Tally()
    try:
        for path in case_files(cases) if cases is not None else ():
            for kind in sorted(CONNECTORS):
                tally.give(kind, path, "files of problem reports")
        for path in _all_examples():
            for kind in sorted(CONNECTORS):
                tally.give(kind, path, "files of other kinds")
        with tempfile.TemporaryDirectory() as folder:
            for kind in sorted(CONNECTORS):
                for example in examples(kind)[:1]:
                    data, source = example.read_bytes(), Path(folder) / example.name
                    for number in range(damaged_inputs):
                        source.write_bytes(damaged(kind, data, number))
                        tally.give(kind, source, "damaged files")
    finally:
        signal.signal(signal.SIGPROF, before)
    return tally


def _all_examples() -> Iterator[Path]:
    for kind in sorted(CONNECTORS):
        yield from examples(kind)


def _ring(_signal: int, _frame: FrameType | None) -> None:
    raise RuntimeError(f"it hangs: no end after {MOST_S:.0f} s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; 0 where every input was read or refused as it should be."""
    shared = Path(os.environ.get("STEPTAX_SHARED", ROOT.parent / "shared"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--cases", type=Path, default=shared / "data" / "cases")
    parser.add_argument("--damaged", type=int, default=200, help="damaged inputs per connector")
    asked = parser.parse_args(arguments)
    cases = asked.cases if asked.cases.is_dir() else None
    tally = run(cases, asked.damaged)
    out = sys.stdout
    out.write(f"connectors            {len(CONNECTORS):,}\n")
    for of, count in tally.tried.items():
        out.write(f"{of:26}{count:9,}\n")
    if cases is None:
        out.write("no problem reports: there is no such folder\n")
    out.write(
        f"inputs tried {tally.tried.total():,}: {tally.read:,} read ({tally.rejected_rows:,} rows "
        f"rejected), {tally.refused:,} refused, {len(tally.faults):,} faults\n"
    )
    for fault in tally.faults[:40]:
        out.write(f"  {fault}\n")
    return 1 if tally.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
