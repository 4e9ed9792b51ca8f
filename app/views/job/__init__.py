"""One job: who is slow and why, what it cost, what it did."""
