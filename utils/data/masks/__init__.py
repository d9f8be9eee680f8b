"""Pixels of objects: drawn from outlines, as run lengths, from prototypes, and back to outlines."""
