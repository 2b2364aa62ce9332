"""Kernels of opaque ops, as Python functions that are read when one is first compiled."""
