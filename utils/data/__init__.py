"""From --data to batches, in NumPy and OpenCV; the folders share `randomness.py`."""
