"""Find faults of a dataset before training does: `duet check`."""
