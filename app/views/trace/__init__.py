"""The what-if analysis of recorded operations: fixes, grids, timelines."""
