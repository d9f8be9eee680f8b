"""Trained weights at work: for detect.py, `duet.load`, `torch.hub.load` and the server."""
