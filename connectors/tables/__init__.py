"""Tables of steps, operations and jobs in any format: CSV, JSON Lines, Parquet, Excel."""
