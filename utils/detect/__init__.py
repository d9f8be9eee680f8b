"""Detection outside the network: sources, reading and writing in threads, results, tracking."""
