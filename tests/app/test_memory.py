"""A server gives back what nobody holds any more, whichever thread made it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from steptax.app.serve import server_flags

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


#: A knot grows so old that the collector, left to itself, would not look at it any more.
_KNOT = """
import gc, time, weakref
from steptax.app import memory
class Node: pass
gc.set_threshold(700, 1_000_000, 1_000_000)
node = Node(); node.self = node; gone = weakref.ref(node)
gc.collect(); del node
if {collects}:
    memory.collect_now_and_then(0.01)
kept = []
for _ in range(300):
    kept.extend([] for _ in range(1_000))
    time.sleep(0.01)
    if gone() is None:
        break
print(gone() is None)
"""


@pytest.mark.parametrize("collects", [True, False])
def test_cycles_are_collected_while_pages_are_made(collects: bool) -> None:
    code = _KNOT.format(collects=collects)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(collects)]


def test_streamlit_does_not_collect_after_each_run_of_a_page() -> None:
    flags = server_flags("127.0.0.1", 1)
    assert flags[flags.index("--runner.postScriptGC") + 1] == "false"
