"""How fast tilegrad is beside its peers: every figure from one run, interleaved and verified."""
