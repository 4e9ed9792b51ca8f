"""The acceptance of nodes as text, JSON and one self-contained HTML file."""

from __future__ import annotations

from html import escape
from typing import Any

from steptax.app.compute.bench.acceptance import Acceptance, Check
from steptax.app.compute.bench.bases import Basis
from steptax.app.format import format_value
from steptax.app.printable import printable
from steptax.app.views.bench.view import AcceptanceView

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;color:#1a1a1a}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.25rem .6rem;"
    "border-bottom:1px solid #ddd;vertical-align:top}td.n{text-align:right;white-space:nowrap}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}}"
)
COLUMNS = ("test", "device", "verdict", "figure", "against", "basis", "why")


#: Longer sources (papers, repositories) are told in full in the HTML and JSON forms only.
_SHORT_SOURCE = 40


def check_cells(check: Check, *, full: bool = True) -> list[str]:
    """One line of the report, as `COLUMNS` names them; not ``full`` for a terminal."""
    figure, basis = check.figure, check.basis
    against = "" if basis is None else format_value(_middle(basis.values), figure.unit)
    return [
        f"{figure.test} {figure.size} {figure.dtype}",
        figure.device_id,
        "no basis" if basis is None and check.status == "unclear" else str(check.status),
        format_value(figure.value, figure.unit),
        against,
        "" if basis is None else _basis(basis, full=full),
        check.reason,
    ]


def _basis(basis: Basis, *, full: bool) -> str:
    named = full or len(basis.source) <= _SHORT_SOURCE
    return f"{basis.kind}, {basis.source}" if named else str(basis.kind)


def _middle(values: tuple[float, ...]) -> float:
    return sorted(values)[len(values) // 2]


def as_json(view: AcceptanceView) -> dict[str, Any]:
    """What ``steptax bench accept --json`` prints."""
    return {"run_id": view.run, "status": view.status, "nodes": [_node(n) for n in view.nodes]}


def _node(node: Acceptance) -> dict[str, Any]:
    return {
        "host": node.host,
        "status": node.status,
        "sentence": node.sentence,
        "checks": [_check(c) for c in node.checks],
        "xids": [
            {"device": d, "xid": m.xid, "action": m.action, "group": m.group, "status": m.status}
            for d, m in node.xids
        ],
        "warnings": node.warnings,
    }


def _check(check: Check) -> dict[str, Any]:
    figure, basis, compared = check.figure, check.basis, check.comparison
    return {
        "status": check.status,
        "test": figure.test,
        "size": figure.size,
        "dtype": figure.dtype,
        "device": figure.device_id,
        "value": figure.value,
        "unit": figure.unit,
        "repeats": figure.repeats,
        "basis": None if basis is None else basis.kind,
        "basis_source": None if basis is None else basis.source,
        "basis_values": None if basis is None else basis.values,
        "gap_ratio": None if compared is None else compared.gap,
        "p": None if compared is None else compared.p,
        "reason": check.reason,
        "others": [
            {"basis": b.kind, "source": b.source, "values": b.values, "gap_ratio": gap}
            for b, gap in check.others
        ],
    }


def as_html(view: AcceptanceView) -> str:
    """One file that needs nothing else: to mail, or to keep with a delivery."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        f"<title>Acceptance of {escape(view.run)}</title><style>{_STYLE}</style>",
        f"<h1>Acceptance: {escape(str(view.status))}</h1><p>Run {escape(view.run)}</p>",
    ]
    for node in view.nodes:
        parts.append(f"<h2>{escape(node.sentence)}</h2>")
        parts += [
            f"<p>Xid {m.xid} on {escape(d)}: {escape(m.group)}, {escape(m.action)}</p>"
            for d, m in node.xids
        ]
        parts += [f"<p>{escape(text)}</p>" for text in node.warnings]
        head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in COLUMNS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in check_cells(check)) + "</tr>"
            for check in node.checks
        )
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
    return printable("".join(parts) + "</html>\n")
