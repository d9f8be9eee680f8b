"""Box sizes of a dataset -> how well anchors fit them, and anchors that fit better."""
