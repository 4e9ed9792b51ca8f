"""Writes the pages of this folder that follow from the code; ``--check`` only compares.

    python docs/generate.py

Metrics come from ``app/metrics.py``, tables from ``app/schema``, connectors from their registry
and from what each says of the example in ``tests/connectors/examples``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from steptax.app.compute.traps import traps_of
from steptax.app.metrics import METRICS
from steptax.app.schema import TABLES, Table
from steptax.benchmarks.product.cost import markdown, measured
from steptax.connectors.base import Connector, Options
from steptax.connectors.registry import CONNECTORS

DOCS = Path(__file__).resolve().parent
EXAMPLES = DOCS.parent / "tests" / "connectors" / "examples"
MADE = "<!-- Written by docs/generate.py: change the code, then run it. -->\n"

LEVELS = {
    0: "L0, job log or accounting",
    1: "L1, step time per rank",
    2: "L2, phases per rank",
    3: "L3, operations per rank",
    4: "L4, device health",
}


def pages() -> dict[str, str]:
    """Every generated page: path below this folder and its text."""
    made = {"metrics.md": metrics_page(), "tables.md": tables_page()}
    made["connectors/index.md"] = connectors_page(CONNECTORS)
    made |= {f"connectors/{kind}.md": connector_page(c) for kind, c in CONNECTORS.items()}
    return {path: MADE + text for path, text in made.items()} | {"scale.md": scale_page()}


def scale_page() -> str:
    """The page on scale, which is written by hand, with its table of costs as it is measured."""
    begin, end = "<!-- costs -->\n", "\n<!-- end of costs -->"
    head, _, rest = (DOCS / "scale.md").read_text(encoding="utf-8").partition(begin)
    return f"{head}{begin}{markdown(measured())}{end}{rest.partition(end)[2]}"


def metrics_page() -> str:
    """The metrics reference: a section for each id of the registry."""
    lines = [
        "# Metrics",
        "",
        "One id, one definition, on every page, in every command and export. A value that cannot",
        "be known is missing with a reason and never zero.",
        "",
    ]
    for spec in METRICS.values():
        better = {"up": "more is better", "down": "less is better", "none": "neither is better"}
        lines += [
            f"## {spec.title}",
            "",
            f"`{spec.id}`, in {spec.unit}; {better[spec.good_direction]}.",
            "",
            f"    {spec.formula}",
            "",
            _text(spec.doc),
            "",
        ]
        for trap in traps_of(spec.id):
            lines += [f"*How it misleads.* {_text(trap.text)}", ""]
    return "\n".join(lines)


def tables_page() -> str:
    """The tables of the lake with every column, its unit and its meaning."""
    lines = [
        "# Tables",
        "",
        "What connectors give and the lake keeps. Time is whole microseconds UTC, bytes are whole",
        "numbers, money is decimal. Every row also says where it was read from.",
        "",
    ]
    for table in TABLES.values():
        lines += [f"## {table.name}", "", _text(table.doc), "", *_columns(table), ""]
    return "\n".join(lines)


def _columns(table: Table) -> list[str]:
    rows = ["| column | unit | meaning |", "|---|---|---|"]
    for column in table.columns:
        key = " (key)" if column.name in table.key else ""
        rows.append(f"| `{column.name}`{key} | {column.unit} | {_cell(column.doc)} |")
    return rows


def connectors_page(connectors: Mapping[str, Connector]) -> str:
    """What can be read, in one table."""
    lines = [
        "# Connectors",
        "",
        "A connector reads one kind of source into rows of the lake's [tables](../tables.md),",
        "counts what it does not understand, and says what it cannot see. `steptax ingest --help`",
        "has the options; [how to add one](../extending.md#a-connector). Where no kind is named,",
        "every connector tries the file's beginning; the one that tells most of it is taken. The",
        "command of each page reads an example that lies in a checkout of Steptax.",
        "",
        "| kind | reads | evidence |",
        "|---|---|---|",
    ]
    for kind, one in connectors.items():
        level = one.probe(example_of(kind), Options()).level
        lines.append(f"| [`{kind}`]({kind}.md) | {_cell(one.title)} | {LEVELS[level]} |")
    return "\n".join([*lines, ""])


def connector_page(connector: Connector) -> str:
    """What one kind needs, what it gives and what it cannot see."""
    example = example_of(connector.kind)
    found = connector.probe(example, Options())
    what, *targets = connector.doc.split("Targets:\n")
    lines = [
        f"# {connector.kind}",
        "",
        f"Reads {_text(connector.title)}.",
        "",
        "```sh",
        # Where it lies in a checkout, so that the line runs as it stands.
        f"steptax ingest {connector.kind} tests/connectors/examples/{example.name}",
        "```",
        "",
        "## What it needs",
        "",
        *(f"{_text(part)}\n" for part in what.strip().split("\n")),
        "## What it gives",
        "",
        f"Evidence {LEVELS[found.level]}: {_text(found.sees)}.",
        "",
        "Rows of " + ", ".join(f"[{t}](../tables.md#{t})" for t in found.tables) + ".",
        "",
        "## What it cannot see",
        "",
        f"{_text(found.cannot_see[:1].upper() + found.cannot_see[1:])}.",
        "",
    ]
    if targets:
        lines += ["## Targets of `--map`", "", "| target | kind | meaning |", "|---|---|---|"]
        for line in targets[0].strip().split("\n"):
            name, _, rest = line.strip().partition(" (")
            kind, _, meaning = rest.partition("): ")
            lines.append(f"| `{name}` | {kind} | {_cell(meaning)} |")
        lines.append("")
    return "\n".join(lines)


def example_of(kind: str) -> Path:
    """The source that the contract tests read for ``kind``."""
    return next(iter(sorted(EXAMPLES.glob(f"{kind}.*"))))


def _text(words: str) -> str:
    """``words`` with what Markdown and HTML would take for marks of their own made literal."""
    for mark in "\\`*_{}[]<>|#":
        words = words.replace(
            mark, f"\\{mark}" if mark not in "<>" else {"<": "&lt;", ">": "&gt;"}[mark]
        )
    return words


def _cell(words: str) -> str:
    return _text(" ".join(words.split()))


def main() -> int:
    """Write or compare; 1 where a page of the folder is not what the code says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    only_check = parser.parse_args().check
    wrong = []
    made = pages()
    left = {p.relative_to(DOCS).as_posix() for p in (DOCS / "connectors").glob("*.md")} - set(made)
    for path in sorted(left):
        wrong.append(path)
        if not only_check:
            (DOCS / path).unlink()
    for path, text in made.items():
        file = DOCS / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            wrong.append(path)
            if not only_check:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
    if only_check and wrong:
        sys.stderr.write(f"run python docs/generate.py: {', '.join(wrong)}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
