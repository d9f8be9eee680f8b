"""What is wrong with a dataset, before a training finds out: `python -m duet check`."""
