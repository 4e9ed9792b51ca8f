"""Two jobs, or two stretches of one, side by side."""
