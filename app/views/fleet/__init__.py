"""The fleet: its jobs, their bills added up, and what breaks."""
