"""From tile kernels to LLVM IR: expressions, loop nests, products."""
