"""Heads: what turns feature maps into predictions and predictions into a loss."""
