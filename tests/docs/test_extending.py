"""A connector is added by following the page about it, and by nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extending.md"
#: A step names the file in bold or code, and what goes into it stands in the fence after it.
FENCE = re.compile(r"```(python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COPIED = ("app", "connectors", "pages", "benchmarks", "src", "docs")
TESTS = ("test_contract.py", "test_mutations.py")


def test_the_connector_of_the_page_passes_the_contract(tmp_path: Path) -> None:
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "tests" / "connectors", tmp_path / "tests" / "connectors")
    page = PAGE.read_text(encoding="utf-8")
    (_, module), (_, example), (_, imported), (_, line) = FENCE.findall(page)
    for name, text in (
        ("connectors/bench/membench.py", module),
        ("tests/connectors/examples/membench.txt", example),
    ):
        assert f"`{name}`" in page
        (tmp_path / name).write_text(text, encoding="utf-8")
    registry = tmp_path / "connectors" / "registry.py"
    text = registry.read_text(encoding="utf-8")
    text = text.replace(
        "\nfrom steptax.connectors.bench", f"\n{imported}from steptax.connectors.bench", 1
    )
    text = re.sub(r"(\n_ALL[^\n]*\(\n)", rf"\1{line}", text, count=1)
    assert imported in text
    assert line in text
    registry.write_text(text, encoding="utf-8")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "src"), "STEPTAX_FUZZ_INPUTS": "300"},
            text=True,
            capture_output=True,
            check=False,
        )

    tests = [f"tests/connectors/{name}" for name in TESTS]
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, "-k", "membench")
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 15
    done = run("docs/generate.py")
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "docs" / "connectors" / "membench.md").read_text(encoding="utf-8")
    assert "steptax ingest membench tests/connectors/examples/membench.txt" in written
    assert module in page
