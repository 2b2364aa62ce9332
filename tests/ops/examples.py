"""Every op with examples (those of indexing, scattering, sorting and random ops: `examples_indexing.py`)."""

from __future__ import annotations

from tests.ops.registry import example, floats
from tilegrad.ops import broadcasting

# --- what makes shapes meet --------------------------------------------------------------------

example(broadcasting.Reshape, lambda x: broadcasting.reshape(x, (4, -1)), floats(2, 6), numpy=lambda x: x.reshape(4, 3))
example(
    broadcasting.Expand, lambda x: broadcasting.expand(x, (2, 3, 4)), floats(3, 1), torch=lambda t, x: x.expand(2, 3, 4)
)
example(broadcasting.Sum, lambda x: broadcasting.reduce_sum(x, (0, 2)), floats(2, 3, 4), numpy=lambda x: x.sum((0, 2)))
