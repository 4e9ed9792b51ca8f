"""The calculators of the What-if page."""
