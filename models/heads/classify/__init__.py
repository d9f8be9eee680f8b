"""YOLOv5's classification head and its loss."""
