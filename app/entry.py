"""Where ``steptax`` begins, before anything that takes time to import."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command; Ctrl-C ends it without a trace even while modules are imported."""
    try:
        from steptax.app.cli import main as run

        run()
    except KeyboardInterrupt:
        # Modules may be half imported, and threads running: leave without tidying up.
        os._exit(130)
