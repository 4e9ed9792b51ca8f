"""What a GPU-hour costs: by a bill, by connected list prices, or as a reader gave it."""
