"""Pure functions from tables of measurements to goodput, straggler tax and dollars.

No clock, no globals, no input or output; seeds are arguments.
"""
