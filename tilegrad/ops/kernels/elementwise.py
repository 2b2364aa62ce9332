"""Element-wise kernels with loops."""

# mypy: ignore-errors
# (Parameters in capitals are constants.)

from __future__ import annotations

from ...tiles.read import core as tl
from ..op_kernel import OpKernel, remainder


@OpKernel
def gcd(x, y, out, BLOCK, COUNT):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < COUNT, other=0)
    b = tl.load(y + i, mask=i < COUNT, other=0)
    while tl.max((b != 0).to(tl.int32), axis=0) > 0:
        rest = tl.where(b != 0, remainder(a, b), 0)
        a = tl.where(b != 0, b, a)
        b = rest
    tl.store(out + i, tl.where(a < 0, 0 - a, a), mask=i < COUNT)
