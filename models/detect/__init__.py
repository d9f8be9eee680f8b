"""Detection with trained weights, for detect.py, `duet.load`, `torch.hub.load` and the server."""
