"""Read, write and lock files within limits."""
