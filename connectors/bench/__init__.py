"""Results of other people's hardware benchmarks."""
