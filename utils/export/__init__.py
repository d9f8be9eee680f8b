"""Trained models for other runtimes: the table of formats, converters, calibration."""
