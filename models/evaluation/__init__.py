"""Evaluation of a model on a dataset split."""
