"""From tile kernels to CUDA C++."""
