"""The commands, by links to the scripts at the top."""
