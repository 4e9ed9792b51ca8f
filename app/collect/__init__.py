"""The collector: takes batches of many senders over HTTP and appends them to a lake."""
