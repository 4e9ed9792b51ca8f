"""What a profiler trace of one rank shows."""
