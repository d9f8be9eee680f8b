"""Frames on their way: read ahead, counted and timed; what `models/inference` runs between."""
