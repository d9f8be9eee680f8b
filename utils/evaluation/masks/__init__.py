"""The metric of objects that have boxes and masks."""
