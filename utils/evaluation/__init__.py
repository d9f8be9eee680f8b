"""Detections held against labels: NMS, COCO's metric, and the figures of old logs."""
