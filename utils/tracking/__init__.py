"""One number for an object in all frames of a video."""
