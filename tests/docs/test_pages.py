"""The documents: generated pages are as the code says, and every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, text=True, capture_output=True, check=False
    )


def test_generated_pages_are_as_the_code_says() -> None:
    done = run("docs/generate.py", "--check")
    assert done.returncode == 0, done.stderr


def test_the_site_builds_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = run("-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "connectors" / "kineto" / "index.html").exists()
    assert not list(tmp_path.rglob("*.py"))


def test_every_page_is_reached_from_the_index() -> None:
    docs = ROOT / "docs"
    found, ahead = set(), [docs / "index.md"]
    while ahead:
        page = ahead.pop()
        if page in found:
            continue
        found.add(page)
        for part in page.read_text(encoding="utf-8").split("](")[1:]:
            target = part.split(")")[0].split("#")[0]
            if target.endswith(".md"):
                ahead.append((page.parent / target).resolve())
    assert {p.resolve() for p in docs.rglob("*.md")} == found


def test_the_pictures_of_the_readme_are_there_and_small() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[(.+?)\]\((.+?)\)", readme)
    assert {Path(path).stem for _, path in shown} == {
        "executive",
        "job",
        "procurement",
        "compare",
        "health",
    }
    for about, path in shown:
        assert len(about) > 20
        assert 10_000 < (ROOT / path).stat().st_size <= 200_000, path
