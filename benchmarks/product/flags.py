"""What numbers and paths on the command line of a benchmark may be.

A benchmark of nothing would print a figure that nobody measured, or fail far from the flag.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path


def count(text: str) -> int:
    """A whole number from 1 on; raises ArgumentTypeError."""
    value = whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, found {text}")
    return value


def whole(text: str) -> int:
    """A whole number from 0 on; raises ArgumentTypeError."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 on, found {text}")
    return value


def amount(text: str) -> float:
    """A finite number above 0; raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text}")
    return value


def file(text: str) -> Path:
    """A file that is there; raises ArgumentTypeError."""
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return path
