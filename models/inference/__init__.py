"""Inference for val.py, training and `models/detect`."""
