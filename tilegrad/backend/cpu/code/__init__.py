"""Lower tile kernels to LLVM IR."""
