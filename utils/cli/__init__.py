"""Flags and hyper-parameters -> frozen settings, checked where they are built."""
