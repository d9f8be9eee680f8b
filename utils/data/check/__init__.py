"""Find faults of a dataset before training does: `python -m duet check`."""
