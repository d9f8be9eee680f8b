"""Fetch the files that a list names: the only code that opens a connection to the outside."""
