"""Tile kernels below the operators: `read` turns Python functions into them, and each pass rewrites one."""
