"""Connectors to the public results of MLPerf Training."""
