"""Alerts: rules over metrics of jobs, what they remember, and who is told."""
