"""Experiment trackers: loss and other scalars by step."""
