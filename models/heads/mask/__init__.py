"""The mask head: boxes and instance masks."""
