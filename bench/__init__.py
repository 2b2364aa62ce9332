"""Benchmarks of tilegrad against its peers: every figure comes from one run, interleaved and verified."""
