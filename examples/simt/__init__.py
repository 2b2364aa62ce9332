"""Kernels for threads, from the first one on: `python -m examples.simt.vector_add` and so on."""
