"""Environments for both backends, made before anything is installed."""
