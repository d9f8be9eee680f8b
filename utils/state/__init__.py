"""A run on disk: its folder, its checkpoints, its record of work, and where it goes on."""
