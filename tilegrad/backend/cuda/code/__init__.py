"""Lower tile kernels to CUDA C++."""
