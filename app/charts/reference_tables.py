"""The reference figures as one table, for its file."""

from __future__ import annotations

from collections.abc import Sequence

from steptax.app.charts.tables import Column, Table, table
from steptax.app.reference import ReferenceFigure, studies


def reference_table(figures: Sequence[ReferenceFigure]) -> Table:
    """One line per figure with its cluster, its source and how it is often misquoted."""
    columns = (
        Column("figure", "figure", "text"),
        Column("value", "value", "text"),
        Column("scope", "holds of", "text"),
        Column("cluster", "cluster", "text"),
        Column("source", "source", "text"),
        Column("mark", "read", "text"),
        Column("misquoted", "often misquoted as", "text"),
        Column("right", "what is right", "text"),
        Column("follows", "what follows", "text"),
        Column("command", "computed by", "text"),
    )
    known = studies()
    rows = []
    for figure in figures:
        study = known[figure.study]
        place = f", {figure.where}" if figure.where else ""
        rows.append(
            (
                figure.figure,
                figure.value,
                figure.scope,
                study.cluster,
                f"{study.citation}{place}",
                figure.mark,
                "; ".join(m.said for m in figure.misquotes) or None,
                " ".join(m.right for m in figure.misquotes) or None,
                "; ".join(c.text for c in figure.follows) or None,
                "; ".join(c.command for c in figure.follows) or None,
            )
        )
    return table(columns, rows)
