"""The mask head: boxes, and the pixels of each object."""
