"""Models: blocks, the graph that connects them, heads, evaluation and training."""
