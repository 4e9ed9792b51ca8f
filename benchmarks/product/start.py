"""How long it takes until something answers: ``python -m steptax.benchmarks.product.start``.

Commands are processes of their own, with the files in no cache where the system's can be emptied
(*cold*: root, Linux) and again (*warm*). The dashboard is timed until it says that it is healthy,
and until a page of a small job is drawn without a browser.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from steptax.app import cli as entry
from steptax.app.lake import Lake
from steptax.benchmarks.product.process import forget_files
from steptax.benchmarks.product.scale_data import JOB, fill

RANKS, STEPS = 64, 200
_ENTRY = Path(entry.__file__).with_name("main.py")
_PAGE = """
import sys
from streamlit.testing.v1 import AppTest
at = AppTest.from_file(sys.argv[1], default_timeout=120)
at.query_params["job"] = sys.argv[2]
at.switch_page("../pages/job.py").run()
assert not at.exception, at.exception
"""


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def command(lake: Path, *arguments: str) -> float:
    """Seconds of ``steptax arguments``."""
    return _took(lake, [sys.executable, "-m", "steptax.app.cli", *arguments])


def page(lake: Path) -> float:
    """Seconds until the job page of a new process is drawn."""
    return _took(lake, [sys.executable, "-c", _PAGE, str(_ENTRY), JOB])


def _took(lake: Path, words: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True, env=_environment(lake))
    return time.perf_counter() - begin


def served(lake: Path) -> float:
    """Seconds until ``steptax serve`` is healthy."""
    port = _free_port()
    words = [sys.executable, "-m", "steptax.app.cli", "serve", "--port", str(port)]
    begin = time.perf_counter()
    server = subprocess.Popen(
        words, env=_environment(lake), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while time.perf_counter() - begin < 120:
            try:
                url = f"http://127.0.0.1:{port}/_stcore/health"
                with urllib.request.urlopen(url, timeout=1):
                    return time.perf_counter() - begin
            except OSError:
                time.sleep(0.02)
        raise TimeoutError("the dashboard did not become healthy")
    finally:
        server.terminate()
        server.wait(30)


def _environment(lake: Path) -> dict[str, str]:
    return {**os.environ, "STEPTAX_LAKE": str(lake), "NO_PROXY": "127.0.0.1"}


def main(arguments: list[str] | None = None) -> int:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="steptax-start-") as folder:
        lake = Path(folder) / "lake"
        fill(Lake(lake, create=True), RANKS, STEPS)
        calls: dict[str, Callable[[], float]] = {
            "steptax --help": lambda: command(lake, "--help"),
            "steptax jobs": lambda: command(lake, "jobs"),
            "steptax job": lambda: command(lake, "job", JOB),
            "serve, until healthy": lambda: served(lake),
            "job page, new process": lambda: page(lake),
        }
        for what, call in calls.items():
            is_cold = forget_files()
            cold_s, warm_s = call(), call()
            first = f"cold {cold_s:5.2f} s" if is_cold else f"first {cold_s:5.2f} s"
            print(f"{what:24}{first}  warm {warm_s:5.2f} s", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
