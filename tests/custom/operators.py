"""Operators that the tests use, at the place where scripts of reports find them."""

from typing import Any

import numpy as np

import tilegrad as tg
import tilegrad.language as tl


@tg.kernel
def scale_kernel(x: Any, out: Any, n: Any, alpha: Any, BLOCK: tl.constexpr) -> None:
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * alpha, mask=i < n)


@tg.op("tests::scale(x: F[*s], alpha: float = 2.0) -> F[*s]  # x times alpha")
def scale(x: Any, alpha: float) -> Any:
    return x * alpha


@scale.kernel
def scaled(x: Any, alpha: float, out: Any) -> None:
    scale_kernel[(tg.cdiv(x.numel(), 64),)](x, out, x.numel(), alpha, BLOCK=64)


@scale.gradient
def scale_gradient(alpha: float, upstream: Any) -> Any:
    return scale(upstream, alpha)


@tg.op("tests::linear(x: F[*s, k], w: F[n, k], b: F[n]?) -> F[*s, n]")
def linear(x: Any, w: Any, b: Any) -> Any:
    y = x @ w.mT
    return y if b is None else y + b


@linear.gradient
def linear_gradient(x: Any, w: Any, b: Any, upstream: Any) -> Any:
    flat = upstream.reshape(-1, w.shape[0])
    found = {"x": upstream @ w, "w": flat.mT @ x.reshape(-1, w.shape[1])}
    return found if b is None else {**found, "b": flat.sum(0)}


@tg.op("tests::moments(x: F[*s, n]) -> (mean: F[*s], spread: F[*s])")
def moments(x: Any) -> Any:
    mean = x.mean(-1)
    return mean, ((x - mean[..., None]) ** 2).mean(-1)


@tg.op("tests::total(xs: (F[*s], ...), weight: float = 1.0) -> F[*s]")
def total(xs: Any, weight: float) -> Any:
    return sum(xs[1:], xs[0]) * weight


@tg.op("tests::sort_rows(x: F[*s, n]) -> (values: F[*s, n], places: int64[*s, n])", arrays=True)
def sort_rows(x: Any) -> Any:
    return np.sort(x, axis=-1), np.argsort(x, axis=-1, kind="stable")


# --- wrong ones ---------------------------------------------------------------------------------------


@tg.op("tests::off(x: F[n]) -> F[n]")
def off(x: Any) -> Any:
    return x * 2


@off.kernel
def off_by_a_tail(x: Any, out: Any) -> None:
    """Leaves the last elements out: the grid is rounded down."""
    scale_kernel[(max(1, x.numel() // 4),)](x, out, 4 * max(1, x.numel() // 4), 2.0, BLOCK=4)


@tg.op("tests::crooked(x: F[n]) -> F[n]")
def crooked(x: Any) -> Any:
    return x * x


@crooked.gradient
def crooked_gradient(x: Any, upstream: Any) -> Any:
    return upstream * x


def same_memory(x: Any) -> Any:
    return x.view(-1)


# --- with numbers: who ignores them is right for their defaults ----------------------------------------


def numbered(name: str) -> Any:
    """A new operator that takes numbers of each kind."""

    @tg.op(f"tests::{name}(x: F[n], alpha: float = 1.0, k: int = 1, on: bool = False) -> F[n]")
    def declared(x: Any, alpha: float, k: int, on: bool) -> Any:
        return x * x * alpha * k * (3 if on else 1)

    return declared


ignorant_kernel, ignorant_gradient = map(numbered, ("ignorant_kernel", "ignorant_gradient"))


@ignorant_kernel.kernel
def ignores_numbers(x: Any, alpha: float, k: int, on: bool, out: Any) -> None:
    product_kernel[(tg.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)


@ignorant_gradient.gradient
def gradient_that_ignores_numbers(x: Any, upstream: Any) -> Any:
    return upstream * x * 2


@tg.kernel
def product_kernel(x: Any, out: Any, n: Any, BLOCK: tl.constexpr) -> None:
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, v * v, mask=i < n)


@tg.op("tests::in_cpp(x: float[n], alpha: float = 1.0) -> float[n]")
def in_cpp(x: Any, alpha: float) -> Any:
    return x * alpha


@tg.op("tests::too_far(x: float[n], alpha: float = 1.0) -> float[n]")
def too_far(x: Any, alpha: float) -> Any:
    return x * alpha


def with_kernels_in_cpp() -> None:
    """Gives the operators above kernels that a C++ compiler has to make: one is right, one writes behind the end."""
    signature = "(x: float[n], alpha: float) -> float[n]"
    right = tg.cpp.inline("for (int64_t i = 0; i < n; ++i) out[i] = x[i] * alpha;", f"right{signature}")
    wrong = tg.cpp.inline("for (int64_t i = 0; i <= n; ++i) out[i] = x[i < n ? i : 0] * alpha;", f"wrong{signature}")
    in_cpp.kernel("cpu", lambda x, alpha: right(x, alpha))
    too_far.kernel("cpu", lambda x, alpha: wrong(x, alpha))
