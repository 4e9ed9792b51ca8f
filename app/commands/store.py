"""``steptax compact``, ``steptax health``: the store itself."""

from __future__ import annotations

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, lake_root, open_lake
from steptax.app.commands.output import console, show, table_of
from steptax.app.commands.progress import working
from steptax.app.format import format_moment
from steptax.app.lake.compact import compact
from steptax.app.views.health import health_view
from steptax.app.views.workspace import open_workspace


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("compact")(compact_command)
    app.command("health")(health_command)


def compact_command(lake: LakeFlag = None, as_json: JsonFlag = False) -> None:
    """Merge small segments; rows stay as they are, readers and writers go on meanwhile."""
    store = open_lake(lake)
    with working("Merging segments"):
        done = compact(store, minimum=2)

    def text() -> None:
        if done.busy:
            console.print("another compactor is at work; nothing was done")
            return
        console.print(
            f"merged {done.merged_segments:,} segments into {done.new_segments:,}, "
            f"deleted {done.deleted_files:,} replaced files"
        )

    show(vars(done), as_json=as_json, text=text)


def health_command(lake: LakeFlag = None, as_json: JsonFlag = False) -> None:
    """Sources, stored rows, recorders and rejected rows: what the Data & health page shows."""
    view = health_view(open_workspace(lake_root(lake)))

    def text() -> None:
        console.print(view.sentence)
        rows = [
            [s.source, s.tables, f"{s.accepted:,}", f"{s.rejected:,}", s.state]
            for s in view.sources
        ]
        console.print(
            table_of("Sources", ("source", "tables", "accepted", "rejected", "state"), rows)
        )
        if view.gaps:
            rows = [
                [
                    format_moment(g.start_us),
                    "no sample since"
                    if g.is_open
                    else format_moment(g.end_us) + ("" if g.is_exact else ", somewhere between"),
                    g.where,
                    f"{g.without_us / 3.6e9:,.2f}",
                ]
                for g in view.gaps
            ]
            heads = ("from", "until", "of", "device-hours not known")
            console.print(table_of("Gaps between samples of devices", heads, rows))
        for reject in view.rejects:
            console.print(
                f"  rejected: {reject['source']}, row {reject['source_row']}: {reject['reason']}"
            )

    show(vars(view), as_json=as_json, text=text, warnings=view.warnings)
