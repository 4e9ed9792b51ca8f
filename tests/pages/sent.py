"""What pages of a run send to the browser, and the files behind their buttons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

#: Every page by the file that draws it.
PAGES = ("executive", "fleet", "job", "compare", "whatif", "procurement", "reference", "health")


def sent(at: AppTest) -> dict[str, bytes]:
    """Every element of a page, by its kind and number, as it goes over the wire."""
    found: dict[str, bytes] = {}

    def walk(node: Any) -> None:
        proto = getattr(node, "proto", None)
        if proto is not None:
            found[f"{getattr(node, 'type', '?')} {len(found)}"] = proto.SerializeToString()
        for child in getattr(node, "children", {}).values():
            walk(child)

    walk(at._tree)
    return found


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], Any]]:
    """What each download of a page would give, by its name; filled while pages run."""
    made: dict[str, Callable[[], Any]] = {}
    button = st.download_button

    def noted(label: str, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        name = str(kwargs.get("file_name"))
        made[name] = data if callable(data) else lambda: data
        return button(label, data, *args, **kwargs)

    monkeypatch.setattr(st, "download_button", noted)
    return made
