"""The ``steptax`` command."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import typer

from steptax.app.one_shot import held_look

#: The commands of each module of ``app/commands``. Only the module of the command that was asked
#: for is imported: all of them together take a second and a half.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "demo": ("demo",),
    "serve": ("serve",),
    "discover": ("discover",),
    "ingest": ("ingest", "connectors"),
    "watch": ("watch",),
    "view": ("jobs", "job", "executive"),
    "compare": ("compare",),
    "fleet": ("fleet",),
    "ledger": ("ledger",),
    "devices": ("devices",),
    "calc": ("calc",),
    "store": ("compact", "health"),
    "retain": ("retain",),
    "doctor": ("doctor",),
    "rollup": ("rollup",),
    "query": ("query",),
    "collectives": ("collectives",),
    "collect": ("collect", "forward"),
    "profile": ("profile",),
    "quiet": ("quiet",),
    "whatif": ("whatif",),
    "bench": ("bench",),
    "procure": ("procure",),
    "prices": ("prices",),
    "alerts": ("alerts",),
    "budget": ("budget",),
    "report": ("report",),
}

#: The commands as a newcomer needs them; ``steptax --help`` lists them so.
PANELS: Mapping[str, tuple[str, ...]] = {
    "Begin": ("demo", "discover", "ingest", "watch", "connectors", "serve"),
    "Look at jobs": (
        "jobs", "job", "compare", "devices", "collectives", "profile", "quiet", "whatif",
    ),
    "Look at money": ("executive", "fleet", "ledger", "budget", "report"),
    "Buy and accept hardware": ("procure", "prices", "bench"),
    "Be told": ("alerts",),
    "Compute and query": ("calc", "query"),
    "Run an installation": (
        "collect", "forward", "health", "doctor", "rollup", "compact", "retain",
    ),
}  # fmt: skip
#: Commands that read a lake once, write nothing to it, and end.
READERS = frozenset(
    {
        "jobs", "job", "executive", "compare", "fleet", "ledger", "devices", "health", "doctor",
        "rollup", "query", "collectives", "profile", "quiet", "whatif", "report",
    }
)  # fmt: skip
_EXAMPLES = """Examples, in the order in which one begins:

    steptax demo                                    a real job, live

    steptax demo --company                          a made-up company's pages

    steptax discover                                what is on this machine

    steptax ingest megatron train.log --job my-job  logs, traces, bills, ...

    steptax job my-job --price 2.50                 who is slow, why, cost

    steptax compare my-job@0-999 my-job@1000-1999   faster, beyond the noise?

    steptax executive --price 2.50                  what was spent, on what

    steptax serve                                   all of it as pages

All but serve take --json; steptax COMMAND --help explains its flags.
"""


def build(arguments: Sequence[str] = ()) -> typer.Typer:
    """The command line with the command that ``arguments`` begin with; with all where none is."""
    app = typer.Typer(
        name="steptax",
        help="Where every GPU-hour and dollar of a training job goes, and what would win it back.",
        epilog=_EXAMPLES,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    # With a callback the app has commands even if only one is registered.
    app.callback()(lambda: None)
    asked = arguments[0] if arguments else None
    of_asked = [module for module, names in COMMANDS.items() if asked in names]
    for module in of_asked or COMMANDS:
        importlib.import_module(f"steptax.app.commands.{module}").register(app)
    panel_of = {name: title for title, names in PANELS.items() for name in names}
    for command in app.registered_commands:
        command.rich_help_panel = panel_of.get(str(command.name))
    for group in app.registered_groups:
        group.rich_help_panel = panel_of.get(str(group.name))
    return app


def main() -> None:
    """Entry point: every error leaves in one shape, with its exit code."""
    arguments = sys.argv[1:] or ["--help"]
    as_json = "--json" in arguments
    try:
        with held_look() if arguments[0] in READERS else nullcontext():
            code = build(arguments)(arguments, standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader of our output left, e.g. `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except Exception as error:
        if "STEPTAX_DEBUG" in os.environ:
            raise
        from steptax.app.commands.output import exit_code_of

        raise SystemExit(exit_code_of(error, as_json=as_json)) from None
    raise SystemExit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
