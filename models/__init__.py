"""Models: blocks, the graph that joins them, heads; their evaluation and their training."""
