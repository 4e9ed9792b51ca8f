"""Where the time of each rank's device goes."""
