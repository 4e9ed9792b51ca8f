"""What other tools and a job's own log say of it, beside our numbers."""
