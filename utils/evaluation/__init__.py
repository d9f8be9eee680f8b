"""Evaluation of detections: NMS, COCO metrics, and YOLOv5's own metrics."""
