"""From --data to batches, in NumPy and OpenCV; flat lies only what is random, which all share."""
