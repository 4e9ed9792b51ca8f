"""Who is slow, since when, by how much, and who waits for it."""
