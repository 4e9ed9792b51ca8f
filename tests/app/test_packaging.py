"""What is shipped: every module under its own name, and nothing beside the package."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("app", "connectors", "pages", "benchmarks")


def tracked() -> set[str]:
    """Source files that belong into the wheel, as the wheel names them."""
    found = {"steptax/__init__.py", "steptax/py.typed"}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found.add(f"steptax/{path.relative_to(ROOT).as_posix()}")
    return found


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    assert names == tracked()
    assert "steptax/app/queries/sql/step_rows.sql" in names


def test_the_links_for_development_point_at_the_folders() -> None:
    for folder in FOLDERS:
        assert (ROOT / "src" / "steptax" / folder).resolve() == ROOT / folder
