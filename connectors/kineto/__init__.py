"""``kineto``: traces of the PyTorch profiler, one file per rank."""

from steptax.connectors.kineto.connector import KinetoConnector
from steptax.connectors.kineto.fields import DEVICE, Kind
from steptax.connectors.kineto.timeline import Timeline

__all__ = ["DEVICE", "Kind", "KinetoConnector", "Timeline"]
