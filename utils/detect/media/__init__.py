"""Images and videos to detect in, and those that are written."""
