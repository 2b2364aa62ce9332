"""The gallery of kernels: each file goes from the plainest kernel to a fast one, step by step."""
