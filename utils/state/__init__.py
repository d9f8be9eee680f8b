"""Runs on disk: folder, checkpoints, record of work, and resume point."""
