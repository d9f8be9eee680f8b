"""Inference for val.py, training and `models/detection`."""
