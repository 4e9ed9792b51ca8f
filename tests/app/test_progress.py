"""Progress is for a terminal alone: it is drawn there, and leaves what is printed as it was."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "connectors" / "examples" / "steps.csv"


def ingest(lake: Path, files: list[Path], *, on_terminal: bool) -> tuple[str, str]:
    """What ``steptax ingest`` writes to stdout and to stderr."""
    command = [sys.executable, "-m", "steptax.app.cli", "ingest", "steps", *map(str, files)]
    command += ["--lake", str(lake), "--json"]
    if not on_terminal:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout, done.stderr
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, env=environment, text=True
    ) as process:
        os.close(theirs)
        said, _ = process.communicate()
    assert process.returncode == 0
    seen = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    return said, seen.decode()


def test_a_terminal_sees_which_file_is_read_and_programs_see_nothing(tmp_path: Path) -> None:
    files = []
    for k in range(3):
        files.append(tmp_path / f"part-{k}.csv")
        files[-1].write_text(EXAMPLE.read_text())
    printed, silent = ingest(tmp_path / "a", files, on_terminal=False)
    assert silent == ""
    told, seen = ingest(tmp_path / "b", files, on_terminal=True)
    assert "Reading part-" in seen
    assert "3" in seen
    # The cursor is shown again at the end, and what goes to stdout is no part of it.
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")
    assert told.startswith("{")
    assert printed.startswith("{")
    assert told.count("accepted") == printed.count("accepted")
