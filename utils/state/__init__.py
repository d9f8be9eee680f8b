"""The state of a run: its checkpoints, its folder, and where it goes on."""
