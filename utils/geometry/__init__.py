"""Boxes, outlines and tiles in NumPy."""
