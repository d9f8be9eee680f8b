"""Drawing of boxes and labels on images."""
