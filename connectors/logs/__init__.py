"""Training logs of every family, and the straggler reports that some of them print."""
