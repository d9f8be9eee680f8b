"""The anchor-based detection head of YOLOv5: raw maps, assignment, loss."""
