"""Devices of a job and of a fleet, and where their samples stop."""
