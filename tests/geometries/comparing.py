"""A layer and all of its gradients, as the compiler makes them, against float64.

Numbers are multiples of a quarter, at most 2, where a layer only multiplies, adds and chooses: then every product and
every sum of them is a number of float32, in whatever order it is added up, and a single term that is lost shows.
Results of 16 bits are those numbers rounded: once for each operation that may have a result of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import tilegrad as tg
from tests.geometries.layers import Attention, Layer, Normalised, Transposed
from tests.geometries.recurrent import Recurrent
from tests.geometries.table import Case
from tests.geometries.windows import Array


class Arithmetic(NamedTuple):
    """A type of numbers, how exactly products are computed, and what a result is rounded to, relative to itself."""

    dtype: str
    precision: str
    unit: float
    product: float
    """The precision to which factors of a product are rounded."""


ARITHMETICS = {
    "float32": Arithmetic("float32", "highest", 2.0**-24, 0.0),
    "high": Arithmetic("float32", "high", 2.0**-24, 2.0**-11),
    "bfloat16": Arithmetic("bfloat16", "highest", 2.0**-8, 0.0),
    "float16": Arithmetic("float16", "highest", 2.0**-11, 0.0),
}
ROUNDINGS = 3
"""A product with its bias is one, or two; what is added around it is another."""
THROUGH = {Attention: 8, Normalised: 12, Recurrent: 6}
"""Roundings that a number goes through in layers that are more than sums of products; of a recurrence, in each step of
which a state of 16 bits is made, for each of which it grows as the root of the steps."""


def leaves_of(case: Case) -> list[Array]:
    """The inputs of the layer of a case, and at the end the upstream gradient."""
    rng = np.random.default_rng(case.number)
    shapes = case.layer.shapes
    if case.layer.exact:
        return [np.clip(np.round(rng.standard_normal(shape) * 4) / 4, -2, 2) for shape in shapes]
    arrays = [rng.standard_normal(shape) for shape in shapes]
    if isinstance(case.layer, Recurrent):
        arrays[1:] = [a * case.layer.width**-0.5 for a in arrays[1:]]
    return [_of_few_bits(a) for a in arrays]


def upstream_of(case: Case, shape: tuple[int, ...]) -> Array:
    """The gradient for a result."""
    made = np.random.default_rng([case.number, 1]).standard_normal(shape)
    return np.clip(np.round(made * 4) / 4, -2, 2) if case.layer.exact else _of_few_bits(made)


def _of_few_bits(a: Array) -> Array:
    """Numbers that every type has: eight bits, none very small."""
    mantissa, exponent = np.frexp(a)
    return np.where(np.abs(a) < 2.0**-10, 0.0, np.ldexp(np.round(mantissa * 256) / 256, exponent))


def right(case: Case, leaves: list[Array]) -> tuple[Array, list[Array]]:
    """Compute in float64 the upstream gradient, the result, and the gradients of all leaves."""
    made, kept = case.layer.forward(*leaves)
    upstream = upstream_of(case, made.shape)
    return upstream, [made, *case.layer.backward(kept, upstream)]


def both(layer: Layer) -> Callable[..., tuple[tg.Tensor, ...]]:
    """The function of leaves, and the gradient for the result, that gives the result and all gradients."""
    function = layer.ours(tg)

    def made(*given: tg.Tensor) -> tuple[tg.Tensor, ...]:
        result = function(*given[:-1])
        return result, *tg.autograd.grad(result, given[:-1], given[-1])

    return made


def tensors(arrays: list[Array], how: Arithmetic, place: str) -> list[tg.Tensor]:
    """The arguments of that function: leaves, and at the end the upstream gradient."""
    made = [tg.tensor(a).to(getattr(tg, how.dtype)).to(place) for a in arrays]
    for x in made[:-1]:
        x.requires_grad = True
    return made


def given(case: Case, how: Arithmetic, place: str) -> list[tg.Tensor]:
    """The same for a case."""
    leaves = leaves_of(case)
    return tensors([*leaves, right(case, leaves)[0]], how, place)


def found(layer: Layer, leaves: list[Array], upstream: Array, how: Arithmetic, place: str) -> list[Array]:
    """The result and all gradients on a device, from one program."""
    function = tg.jit(both(layer))
    before = tg.get_float32_matmul_precision()
    tg.set_float32_matmul_precision(how.precision)
    try:
        return [y.detach().to("cpu").double().numpy() for y in function(*tensors([*leaves, upstream], how, place))]
    finally:
        tg.set_float32_matmul_precision(before)


def wrong(layer: Layer, made: Array, wanted: Array, how: Arithmetic) -> str:
    """List the results whose error exceeds rounding."""
    if made.shape != wanted.shape:
        return f"shape {made.shape}, not {wanted.shape}"
    rms = float(np.sqrt(np.mean(wanted**2))) if wanted.size else 0.0
    if layer.exact:
        bound = how.unit * (ROUNDINGS * (np.abs(wanted) + 4.0) + _parts(layer) * rms)
    else:
        roundings = THROUGH[type(layer)] * (layer.steps**0.5 if isinstance(layer, Recurrent) else 1.0)
        unit = max(how.unit * roundings, how.unit + 4 * how.product, 2.0**-24 * layer.terms**0.5 * roundings)
        bound = unit * (np.abs(wanted) + 6 * rms)
    off = np.abs(made - wanted)
    bad = ~(off <= bound)
    if not bad.any():
        return ""
    worst = np.unravel_index(np.nanargmax(np.where(bad, np.nan_to_num(off, nan=np.inf), -1.0)), off.shape)
    relative = np.linalg.norm(off) / max(np.linalg.norm(wanted), 1e-30)
    place = ", ".join(map(str, worst))
    return (
        f"{bad.sum()} of {bad.size} off, {relative:.2g} in all; at [{place}] {made[worst]:.6g}, not {wanted[worst]:.6g}"
    )


def _parts(layer: Layer) -> int:
    """The number of rounded results that a gradient is the sum of: a transposed convolution is computed for each phase
    of its stride, and so is the gradient for its input. Elsewhere they are about as large as their sum.
    """
    return 2 * layer.stride ** len(layer.taps) if isinstance(layer, Transposed) and layer.stride > 1 else 0


def faults(case: Case, arithmetics: list[str], place: str) -> list[str]:
    """Every result of a case that is wrong."""
    leaves = leaves_of(case)
    upstream, wanted = right(case, leaves)
    said = []
    for name in arithmetics:
        how = ARITHMETICS[name]
        results = found(case.layer, leaves, upstream, how, place)
        for n, (made, one) in enumerate(zip(results, wanted, strict=True)):
            reason = wrong(case.layer, made, one, how)
            said += (
                [f"{case.name} {case.layer} {name}, {f'gradient {n - 1}' if n else 'result'}: {reason}"]
                if reason
                else []
            )
    return said
