"""Statistics that all parts use: intervals, order statistics, change points, exact sums."""
