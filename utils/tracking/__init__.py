"""Tracking: one id for an object in all frames of a video."""
