"""The tile language: kernels of users, in the notation of Triton's core. `import tilegrad.language as tl`."""

from __future__ import annotations

from ..ir.dtype import (
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ..ir.dtype import DType as dtype
from .debugging import (
    assume,
    debug_barrier,
    device_assert,
    device_print,
    max_constancy,
    max_contiguous,
    multiple_of,
    static_assert,
    static_print,
)
from .kernel import kernel
from .loops import range_, static_range
from .mathematics import (
    abs_,
    ceil,
    cdiv,
    clamp,
    cos,
    div_rn,
    dot,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    libdevice,
    log,
    log2,
    logical_and,
    logical_not,
    logical_or,
    math,
    maximum,
    minimum,
    rsqrt,
    sigmoid,
    sin,
    sqrt,
    sqrt_rn,
    umulhi,
    where,
)
from .memory import (
    advance,
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    load,
    load_tensor_descriptor,
    make_block_ptr,
    make_tensor_descriptor,
    store,
    store_tensor_descriptor,
)
from .reducing import (
    all_,
    any_,
    argmax,
    argmin,
    associative_scan,
    cummax,
    cummin,
    cumprod,
    cumsum,
    max_,
    min_,
    reduce,
    reduce_or,
    sum_,
    xor_sum,
)
from .shaping import (
    arange,
    broadcast,
    broadcast_to,
    cast,
    cat,
    expand_dims,
    flip,
    full,
    gather,
    interleave,
    join,
    num_programs,
    permute,
    program_id,
    ravel,
    reshape,
    split,
    trans,
    zeros,
    zeros_like,
)
from .tuning import Config, autotune, heuristics
from .values import constexpr

int1 = bool_
abs, all, any, max, min, range, sum = abs_, all_, any_, max_, min_, range_, sum_
view = reshape

from .standard import (  # noqa: E402 - they are written in the language above
    histogram,
    philox,
    philox_impl,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    softmax,
    sort,
    swizzle2d,
)
