"""The cost review of an executive: spend, its parts, budgets and what to fix first."""
