"""Measure the error of the CPU's elementary functions.

`python -m tests.backend.maths_accuracy exp sin` tries all 2^32 float32 arguments (a few minutes a function); `--step
257` every 257th of them; without names, every function. The oracle of float32 is float64 arithmetic of numpy and
`math`, that of float64 the long double of numpy.
"""

from __future__ import annotations

import argparse
import ctypes
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from tilegrad.backend.cpu import ir_modules, maths, objects
from tilegrad.backend.cpu.emit import Builder, LlvmValue, Type

NUMPY = {"float": np.float32, "double": np.float64}
Oracle = Callable[..., Any]


def sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def elementwise(f: Callable[[float], float]) -> Oracle:
    return np.vectorize(f, otypes=[np.float64])


ORACLES: dict[str, Oracle] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "erf": elementwise(math.erf),
    "erfc": elementwise(math.erfc),
    "pow": np.power,
    "atan2": np.arctan2,
    "fmod": np.fmod,
}
BINARY = ("pow", "atan2", "fmod")


@cache
def loop(fn: str, element: str, lanes: int) -> tuple[objects.LinkedCode, Any]:
    """Compile the loop of a function over arrays whose length is a multiple of `lanes`."""
    b = Builder()
    arity = 2 if fn in BINARY else 1
    type = Type(element, 0 if lanes == 1 else lanes)
    result = maths.emit(b, fn, tuple(LlvmValue(f"%x{n}", type) for n in range(arity)))
    loads = [
        f"  %a{n} = getelementptr {element}, ptr %p{n}, i64 %i\n  %x{n} = load {type}, ptr %a{n}, align 4"
        for n in range(arity)
    ]
    ir = "\n".join(
        [
            *b.declarations.values(),
            f"define void @loop({''.join(f'ptr %p{n}, ' for n in range(arity))}ptr %q, i64 %n) {{",
            "start:\n  br label %entry\nentry:",
            f"  %i = phi i64 [ 0, %start ], [ %next, %{b.scopes[0].label} ]",
            *loads,
            *b.scopes[0].lines,
            f"  %o = getelementptr {element}, ptr %q, i64 %i\n  store {type} {result}, ptr %o, align 4",
            f"  %next = add i64 %i, {lanes}\n  %more = icmp slt i64 %next, %n",
            "  br i1 %more, label %entry, label %exit\nexit:\n  ret void\n}",
        ]
    )
    code = ir_modules.compile_kernels([("loop", ir)], objects.host())
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (arity + 1), ctypes.c_int64)
    return code, signature(code.addresses["loop"])


def computed(fn: str, *args: np.ndarray, lanes: int = 8) -> np.ndarray:
    """Run the generated code on arrays of one length, padded to whole vectors."""
    element = "float" if args[0].dtype == np.float32 else "double"
    size = -(-len(args[0]) // lanes) * lanes
    padded = [np.ascontiguousarray(np.pad(x, (0, size - len(x)), mode="edge")) for x in args]
    result = np.empty_like(padded[0])
    _, call = loop(fn, element, lanes)
    call(*[x.ctypes.data for x in padded], result.ctypes.data, size)
    return result[: len(args[0])]


def errors(result: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Errors in units of the last place of the exact value; infinite where NaN, sign or overflow are wrong."""
    bits, least = (24, -149) if result.dtype == np.float32 else (53, -1074)
    with np.errstate(all="ignore"):
        nearest = exact.astype(result.dtype)
        one = np.ldexp(np.ones_like(exact), np.maximum(np.frexp(exact)[1] - bits, least))
        distance = np.abs(result.astype(exact.dtype) - exact) / one
        same = (result == nearest) | (np.isnan(result) & np.isnan(nearest))
        plain = np.isfinite(result) & np.isfinite(nearest)
        edge = np.nextafter(np.copysign(np.array(np.inf, result.dtype), nearest), np.array(0, result.dtype))
        near_overflow = (np.isinf(result) != np.isinf(nearest)) & ((result == edge) | (nearest == edge))
        distance = np.where(plain, distance, np.where(same, 0, np.where(near_overflow, 1, np.inf)))
        wrong_sign = (np.signbit(result) != np.signbit(nearest)) & ~np.isnan(nearest)
        return np.asarray(np.where(wrong_sign, np.inf, distance))


def floats(start: int, stop: int, step: int) -> np.ndarray:
    """The float32 numbers whose bits are range(start, stop, step)."""
    return np.arange(start, stop, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def pieces(step: int, size: int = 1 << 20) -> Iterator[np.ndarray]:
    for start in range(0, 1 << 32, size * step):
        yield floats(start, min(start + size * step, 1 << 32), step)


def greatest_error(fn: str, step: int, lanes: int = 8) -> tuple[float, float]:
    """The greatest error over every `step`-th float32, and its argument."""
    worst = (0.0, 0.0)
    for x in pieces(step):
        with np.errstate(all="ignore"):
            exact = ORACLES[fn](x.astype(np.float64))
        found = errors(computed(fn, x, lanes=lanes), exact)
        at = int(np.argmax(found))
        worst = max(worst, (float(found[at]), float(x[at])))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("functions", nargs="*", default=[fn for fn in ORACLES if fn not in BINARY])
    parser.add_argument("--step", type=int, default=1)
    chosen = parser.parse_args()
    for fn in chosen.functions:
        error, at = greatest_error(fn, chosen.step)
        print(f"{fn}: {error:.3f} ULP at {at!r} (stated: {maths.ACCURACY[fn]})", flush=True)


if __name__ == "__main__":
    main()
