"""Samples -> batches: read, cached, built in this process or in workers."""
