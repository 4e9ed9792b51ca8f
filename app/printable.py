"""Text of others, as it may be shown: whoever writes an input names jobs, nodes and people."""

from __future__ import annotations

import re
from typing import Any, Final

#: What a terminal would obey, and no page may hold: control characters but tab and line end, and
#: marks that reverse the writing.
_CONTROLS: Final = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]")
#: What a spreadsheet takes for the begin of a formula (OWASP, CSV Injection), where a cell begins:
#: also after what separates cells where the comma is a decimal point.
_FORMULA: Final = re.compile(
    "^(?=[=+\\-@\\t\\r\\n\uff1d\uff0b\uff0d\uff20])|(?<=[;|\\t\\r\\n])(?=[=+\\-@\uff1d\uff0b\uff0d\uff20])"
)


def printable(text: str) -> str:
    """``text`` with every such character replaced."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def printable_value(value: Any) -> Any:
    """The same of whatever a template is given; what is no plain text stays as it is."""
    return printable(value) if type(value) is str else value


def no_formula(text: str) -> str:
    """``text`` led by an apostrophe wherever a spreadsheet would run it."""
    return _FORMULA.sub("'", text)
