"""The public names of `tl`, except those written in the tile language itself (`standard.py`)."""

from __future__ import annotations

from ...ir.dtype import DType as dtype
from ...ir.dtype import (
    bfloat16,
    bool_,
    float8_e4m3fn,
    float8_e5m2,
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
from .builtin import METHODS
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
from .loops import range_, static_range
from .mathematics import (
    PropagateNan,
    abs_,
    cdiv,
    ceil,
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
    pointer_type,
    store,
    store_tensor_descriptor,
)
from .reductions import (
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
from .shapes import (
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
    seed_of,
    split,
    trans,
    zeros,
    zeros_like,
)
from .values import MissingDtype, constexpr

int1, float8e4nv, float8e5 = bool_, float8_e4m3fn, float8_e5m2
abs, all, any, max, min, range, sum = abs_, all_, any_, max_, min_, range_, sum_
view = METHODS["view"] = reshape

float8e4b8, float8e4b15, float8e5b16 = map(MissingDtype, ("float8e4b8", "float8e4b15", "float8e5b16"))


class const:
    """Annotation of a pointer that a kernel only loads from."""


__all__ = [
    "PropagateNan", "abs", "abs_", "advance", "all", "all_", "any", "any_", "arange", "argmax",
    "argmin", "associative_scan", "assume", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min",
    "atomic_or", "atomic_xchg", "atomic_xor", "bfloat16", "bool_", "broadcast", "broadcast_to", "cast", "cat",
    "cdiv", "ceil", "clamp", "const", "constexpr", "cos", "cummax", "cummin", "cumprod", "cumsum", "debug_barrier",
    "device_assert", "device_print", "div_rn", "dot", "dtype", "erf", "exp", "exp2", "expand_dims", "fdiv", "flip",
    "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float8e4b15", "float8e4b8",
    "float8e4nv", "float8e5", "float8e5b16", "floor", "fma",
    "full", "gather", "int1", "int16", "int32", "int64", "int8", "interleave", "join", "load",
    "load_tensor_descriptor", "log", "log2", "logical_and", "logical_not", "logical_or", "make_block_ptr",
    "make_tensor_descriptor", "math", "max", "max_", "max_constancy", "max_contiguous", "maximum", "min", "min_",
    "minimum", "multiple_of", "num_programs", "permute", "pointer_type", "program_id", "range", "range_", "ravel",
    "reduce", "reduce_or", "reshape", "rsqrt", "seed_of", "sigmoid", "sin", "split", "sqrt", "sqrt_rn",
    "static_assert", "static_print", "static_range", "store", "store_tensor_descriptor", "sum", "sum_", "trans",
    "uint16", "uint32", "uint64", "uint8", "umulhi", "view", "where", "xor_sum", "zeros", "zeros_like",
]  # fmt: skip
