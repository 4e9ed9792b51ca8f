"""Samples of devices, joined with the ranks that run on them."""
