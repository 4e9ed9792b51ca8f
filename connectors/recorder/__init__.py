"""Records each step of a training job from inside its processes.

    from steptax.connectors.recorder import StepRecorder

Needs nothing but the standard library; writes Parquet where pyarrow is installed, JSON Lines
elsewhere. It never raises into the training loop and never waits for the disk or the device.
"""

from steptax.connectors.recorder.clock import Clock
from steptax.connectors.recorder.recorder import StepRecorder

__all__ = ["Clock", "StepRecorder"]
