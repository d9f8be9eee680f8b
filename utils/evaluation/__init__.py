"""Detections compared with labels: NMS, COCO's metric, and the figures of old logs."""
