"""What a run learns for its money."""
