"""Bills, prices and what people write down of jobs."""
