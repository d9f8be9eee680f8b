"""Trained weights at work: images -> detections, for detect.py, `models.load` and val.py."""
