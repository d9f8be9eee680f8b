"""Kernels that only PyTorch can launch; imported by the functions that launch them."""
