"""FLOPs of a model, peaks of devices, and their ratio."""
