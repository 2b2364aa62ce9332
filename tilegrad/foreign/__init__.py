"""Functions in other languages: C++ by whatever compiler there is, CUDA by NVRTC, called with tensors.

The doors are `tilegrad.cpp.inline` and `tilegrad.cuda.inline`; what is behind them stands in docs/foreign.md.
"""
