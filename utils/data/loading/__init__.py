"""Samples become batches, in this process or in workers."""
