"""The anchor-free detection head: distributions of edges, task-aligned assignment, loss."""
