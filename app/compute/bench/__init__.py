"""Figures of benchmarks against their bases."""
