"""The commands, as links to the top-level scripts."""
