"""Spend over periods: budgets, burn of error budgets, variance, anomalies, outlook."""
