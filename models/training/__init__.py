"""Training: a run's state, step and loop, and the choices made at its start."""
