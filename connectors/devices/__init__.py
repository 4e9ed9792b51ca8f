"""Connectors of what devices say of themselves."""
