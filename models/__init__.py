"""Models: blocks, the graph that joins them, heads with their losses, and the weight average."""
