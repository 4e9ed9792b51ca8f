"""``kineto``: traces of the PyTorch profiler, one file per rank."""
