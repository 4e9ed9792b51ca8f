"""A process that ends with the one that started it, however that ended.

Who is killed can end nobody. So what it started reads from a pipe that nothing is ever written to:
the system closes the pipe with the process that held its other end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Final

#: In the environment of a process whose standard input is such a pipe.
TIED: Final = "STEPTAX_TIED"
#: Seconds for what is under way, as a request that is being answered.
_PATIENCE_S: Final = 5.0


def end_with_parent() -> None:
    """Where the environment says that it is tied: end as by a polite kill, once it is alone."""
    if os.environ.pop(TIED, None) is None:
        return

    def wait() -> None:
        while os.read(sys.__stdin__.fileno(), 1024):  # type: ignore[union-attr]
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_PATIENCE_S)
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()
