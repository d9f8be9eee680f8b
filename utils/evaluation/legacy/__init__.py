"""The metric as YOLOv5 prints it, for comparing with old logs."""
