"""compare.py in parts: what to run, running it, judging it, and telling it in three forms."""
