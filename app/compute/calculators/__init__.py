"""What-if calculators: each a pure function with its parameters, formula, source and page text."""
