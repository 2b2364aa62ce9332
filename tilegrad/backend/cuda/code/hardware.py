"""Facts about NVIDIA GPUs on which generated code relies."""

WARP_LANES = 32
"""Threads of a warp."""
VECTOR_BYTES = 16
"""Largest load, store or asynchronous copy of a thread, in bytes."""
LINE_BYTES = 128
"""Bytes of a line of an operand in shared memory, over which pieces are swizzled."""
MMA_ROWS = 16
"""Rows of a product of one warp (mma.sync)."""
WARPGROUP_ROWS = 64
"""Rows of a product of one warpgroup (wgmma)."""
MAX_WARPGROUP_COLUMNS = 256
"""Largest number of columns of a product of one warpgroup (wgmma)."""
MAX_BOX_LINES = 256
"""Largest number of lines that one instruction copies (cp.async.bulk.tensor)."""
REGISTER_BITS = 32
"""Bits of a register: C++ computes narrower integers in this width."""
BANK_BYTES = 4
"""Bytes of a bank of shared memory."""
ASYNC_COPY_CAPABILITY = 80
"""First compute capability with asynchronous copies by threads (cp.async)."""
TENSOR_CORE_CAPABILITY = 80
"""First compute capability whose tensor cores are used."""
FLOAT8_CAPABILITY = 89
"""First compute capability whose tensor cores take 8-bit floats."""
