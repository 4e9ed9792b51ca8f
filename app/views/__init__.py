"""View models: one typed object per page, built from queries and the computation layer.

A page, a command, an export all print the same object, so a number has one value everywhere.
"""
