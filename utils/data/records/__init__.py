"""Packed datasets: many images in a few FFRecord files; docs/records.md is their description."""
