"""The loop that the page of the recorder shows records a job as it stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_commands import commands, is_run

PAGE = Path(__file__).parents[2] / "docs" / "recorder.md"


def test_the_loop_of_the_page_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steptax: Callable[..., Any]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(PAGE), "exec"), {"__name__": "__main__"})
    view = steptax("job", "my-job", "--lake", tmp_path / "steptax-lake")
    assert "20 of 20 steps used" in view["coverage"]["text"]
    for words in commands(PAGE, "", "bash", "console"):
        if words[0] == "steptax" and is_run(words):
            steptax(*words[1:], "--lake", tmp_path / "steptax-lake")
