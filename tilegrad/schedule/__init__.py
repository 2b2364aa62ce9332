"""From a graph to kernels to a program, one pass a file, in the order inline, fuse, order, lower, memory, assemble."""
