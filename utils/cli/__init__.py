"""Command lines: what they share, and the settings that they give."""
