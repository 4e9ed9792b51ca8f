"""The ``steptax`` command."""

from __future__ import annotations

import os
import sys

import typer

from steptax.app.commands import calc, demo, ingest, store, view
from steptax.app.commands.output import exit_code_of

app = typer.Typer(
    name="steptax",
    help="Where every GPU-hour and dollar of a training job goes, and what would win it back.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for module in (demo, ingest, view, calc, store):
    module.register(app)


def main() -> None:
    """Entry point: every error leaves in one shape, with its exit code."""
    as_json = "--json" in sys.argv
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader of our output left, e.g. `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except Exception as error:
        if "STEPTAX_DEBUG" in os.environ:
            raise
        raise SystemExit(exit_code_of(error, as_json=as_json)) from None
    raise SystemExit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
