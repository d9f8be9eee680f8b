"""YOLOv5's anchor-based detection head: raw maps, assignment, loss."""
