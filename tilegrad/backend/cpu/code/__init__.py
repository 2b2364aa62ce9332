"""From tile kernels to LLVM IR."""
