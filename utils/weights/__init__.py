"""Weights of other programs, read as data: nothing in them is run or imported."""
