"""A figure that is drawn while another thread imports pandas: the first page of a server."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import importlib.abc, sys, threading, time
import numpy as np
from steptax.app.charts.style import blank

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "pandas.core.api":
            begun.set()
            time.sleep(1.0)

begun = threading.Event()
assert "pandas" not in sys.modules
sys.meta_path.insert(0, Slow())
other = threading.Thread(target=__import__, args=("pandas",))
other.start()
begun.wait()
figure = blank(100)
figure.add_scatter(x=np.arange(3), y=np.arange(3.0))
other.join()
print(len(figure.data[0].x))
"""


def test_a_figure_waits_for_an_import_that_is_under_way() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.stdout.strip() == "3", done.stderr
