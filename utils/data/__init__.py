"""From files to batches, in NumPy and OpenCV: sources, labels, augment, loader, shapes."""
