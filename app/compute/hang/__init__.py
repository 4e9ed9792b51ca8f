"""Who holds up a job that hangs."""
