"""Training: the state of a run, its step, its loop, and the choices made at its start."""
