"""Foreign functions called with tensors: C++ through a system compiler, CUDA through NVRTC.

The public functions are `tilegrad.cpp.inline` and `tilegrad.cuda.inline`; docs/foreign.md explains the design.
"""
