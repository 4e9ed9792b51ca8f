"""What a job would cost on other devices."""
