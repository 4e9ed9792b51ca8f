"""Job schedulers: what their accounting says of jobs, their devices and their time."""
