"""The process of `python -m utils.serve` that predicts: image files in, answers out."""
