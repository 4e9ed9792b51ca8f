"""The commands of the ``steptax`` program, one module per group."""
