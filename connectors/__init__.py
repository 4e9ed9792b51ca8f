"""One module per source of evidence; ``base`` is the contract, ``registry`` the list."""
