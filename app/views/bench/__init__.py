"""Benchmarks of hardware: comparisons, acceptance, tests of a suspect."""
