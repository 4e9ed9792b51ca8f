"""Freed memory goes back to the system, whichever thread it was freed in."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Threads, one after another as pages are drawn, fill lists with small objects and drop them.
_THREADS = """
import threading
from pathlib import Path
from steptax.app.memory import give_back_what_is_freed
assert {given}() is {told}
barrier = threading.Barrier(16)
def draw():
    barrier.wait()
    kept = [bytes(700) for _ in range(20_000)]
    barrier.wait()
threads = [threading.Thread(target=draw) for _ in range(16)]
[t.start() for t in threads]
[t.join() for t in threads]
maps = Path("/proc/self/maps").read_text().splitlines()
print(sum("rw-p 00000000 00:00 0" in line for line in maps))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is asked for")
def test_threads_share_few_arenas() -> None:
    regions = []
    for given, told in (("give_back_what_is_freed", "True"), ("bool", "False")):
        done = subprocess.run(
            [sys.executable, "-c", _THREADS.format(given=given, told=told)],
            capture_output=True,
            text=True,
            check=True,
        )
        regions.append(int(done.stdout))
    assert regions[0] < regions[1]


def test_what_is_settled_is_not_looked_at_again() -> None:
    code = (
        "import gc, numpy, pyarrow\n"
        "from steptax.app.memory import settle\n"
        "before = len(gc.get_objects())\n"
        "settle()\n"
        "assert gc.get_freeze_count() >= before * 0.9\n"
        "print(len(gc.get_objects()) < before / 10)\n"
        "class Node: pass\n"
        "import weakref\n"
        "node = Node(); node.self = node; gone = weakref.ref(node); del node\n"
        "gc.collect()\n"
        "print(gone() is None)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
