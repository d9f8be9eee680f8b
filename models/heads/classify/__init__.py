"""The classification head of YOLOv5: logits of an image, their loss."""
