"""Images -> detections, as val.py, training and `models/detection` need them."""
