"""Connectors of metrics as Prometheus knows them: scrapes, and answers of its HTTP API."""
