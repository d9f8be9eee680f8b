"""Where on a machine a rank works: its NUMA node, the node's cores and its memory."""
