"""Bandwidth and arrival order of collectives."""
