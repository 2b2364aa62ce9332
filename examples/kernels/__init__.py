"""The gallery of kernels: each file climbs from the plainest kernel to a fast one."""
