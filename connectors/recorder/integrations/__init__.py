"""The recorder inside the training loops of frameworks. See README.md in this folder.

Each module imports its framework when it is called, not when it is imported, and nothing in here
raises into training.
"""

from steptax.connectors.recorder.integrations.environment import recorder_from_environment
from steptax.connectors.recorder.integrations.loop import (
    recorded_calls,
    recorded_iterator,
    recorded_steps,
)

__all__ = [
    "recorded_calls",
    "recorded_iterator",
    "recorded_steps",
    "recorder_from_environment",
]
