"""Which part of a machine a rank works in: its NUMA node, the node's cores and its memory."""
