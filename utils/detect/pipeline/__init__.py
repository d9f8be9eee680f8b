"""Frames before and after `models/inference`: read ahead, counted, timed and written."""
