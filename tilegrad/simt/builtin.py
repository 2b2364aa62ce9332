"""Builtins of the thread language: names predefined in kernels. They have no meaning outside kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..errors import KernelError
from ..ir.node import Node

WARP = 32
ALL_LANES = 0xFFFF_FFFF


class ThreadBuiltin:
    """A function of the language."""

    def __init__(self, name: str, kind: str, form: str) -> None:
        self.name, self.kind, self.form = name, kind, form

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise KernelError(f"simt.{self.name} is called in kernels only: write a function and mark it with @simt.kernel")

    def __repr__(self) -> str:
        return f"<simt.{self.form}>"


class IndexVector:
    """`threadIdx` and the like, with components `x`, `y` and `z`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, axis: str) -> NoReturn:
        if axis.startswith("__"):
            raise AttributeError(axis)
        raise KernelError(f"{self.name}.{axis} has a value in kernels only: mark the function with @simt.kernel")

    def __repr__(self) -> str:
        return f"<simt.{self.name}>"


class ScalarFunction(Node):
    """A function that each thread computes by itself; `kinds` are the element types it accepts."""

    name: str
    count: int
    meaning: Callable[..., Any]
    kinds: tuple[str, ...] = ("float",)
    spelled: str = ""
    """Name in CUDA C++, if it is not `name` with a suffix `f` for float32."""


def count_bits(x: Any) -> Any:
    """Count the bits that are set in each number.

    >>> count_bits(np.array([0, 7, -1], np.int32))
    array([ 0,  3, 32], dtype=int32)
    """
    bytes = np.ascontiguousarray(x).reshape(-1, 1).view(np.uint8)
    return np.unpackbits(bytes, axis=1).sum(1).astype(x.dtype).reshape(x.shape)


FUNCTIONS = {
    f.name: f
    for f in (
        *(ScalarFunction(name, 1, getattr(np, name)) for name in (
            "sqrt", "exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil",
            "trunc", "cbrt", "rint",
        )),
        ScalarFunction("asin", 1, np.arcsin), ScalarFunction("acos", 1, np.arccos),
        ScalarFunction("atan", 1, np.arctan), ScalarFunction("atan2", 2, np.arctan2),
        ScalarFunction("rsqrt", 1, lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(x.dtype)),
        ScalarFunction("pow", 2, np.power), ScalarFunction("fmod", 2, np.fmod),
        ScalarFunction("hypot", 2, np.hypot),
        ScalarFunction("abs", 1, np.abs, ("float", "int"), "abs"),
        ScalarFunction("min", 2, np.fmin, ("float", "int", "uint"), "min"),
        ScalarFunction("max", 2, np.fmax, ("float", "int", "uint"), "max"),
        ScalarFunction("popc", 1, count_bits, ("int", "uint"), "__popc"),
    )
}  # fmt: skip

PYTHON_FUNCTIONS: dict[Any, str] = {abs: "abs", min: "min", max: "max", pow: "pow", math.fabs: "abs"} | {
    getattr(math, name): name for name in FUNCTIONS if hasattr(math, name)
}
"""Python builtins that are functions of the language."""

SHUFFLES = ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")
VOTES = ("ballot_sync", "any_sync", "all_sync")
ATOMICS = ("Add", "Sub", "Min", "Max", "And", "Or", "Xor", "Inc", "Dec", "Exch", "CAS")
FENCES = ("threadfence", "threadfence_block")
"""Memory fences. Atomics order accesses here without them, but ported kernels contain them."""

threadIdx, blockIdx, blockDim, gridDim = (IndexVector(n) for n in ("threadIdx", "blockIdx", "blockDim", "gridDim"))
shared = ThreadBuiltin("shared", "array", "shared(dtype, shape)")
local = ThreadBuiltin("local", "array", "local(dtype, shape)")
dynamic_shared = ThreadBuiltin("dynamic_shared", "array", "dynamic_shared(dtype)")
syncthreads = ThreadBuiltin("syncthreads", "barrier", "syncthreads()")
syncwarp = ThreadBuiltin("syncwarp", "barrier", "syncwarp()")

BUILTINS: dict[str, Any] = {
    **{
        name: ThreadBuiltin(name, "function", f"{name}({', '.join('xyz'[: f.count])})") for name, f in FUNCTIONS.items()
    },
    **{name: ThreadBuiltin(name, "shuffle", f"{name}(mask, value, lane, width=32)") for name in SHUFFLES},
    **{name: ThreadBuiltin(name, "vote", f"{name}(mask, condition)") for name in VOTES},
    **{f"atomic{n}": ThreadBuiltin(f"atomic{n}", "atomic", f"atomic{n}(array[i], value)") for n in ATOMICS[:-1]},
    **{name: ThreadBuiltin(name, "barrier", f"{name}()") for name in FENCES},
    "atomicCAS": ThreadBuiltin("atomicCAS", "atomic", "atomicCAS(array[i], expected, value)"),
}
"""Builtins other than the functions of numbers, by name."""
