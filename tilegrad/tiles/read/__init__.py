"""Read Python functions into tile kernels, specialised for types and constants."""
