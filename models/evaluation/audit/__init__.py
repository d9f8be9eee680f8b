"""Audit of a dataset's labels with a trained model."""
