"""Operators that make tensors: constants, ranges, random numbers, windows."""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

from ... import functional as tg
from ...ir.dtype import float32
from ...tensor import Tensor
from ..problems import OnnxError
from ..rules import Function
from ..tensors import element_type
from ..values import Ints, Number


def constant(
    *,
    value: Any = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
) -> Any:
    """Return a constant as an array."""
    if value is not None:
        return value
    if value_float is not None or value_floats is not None:
        return np.array(value_floats if value_float is None else value_float, np.float32)
    if value_int is None and value_ints is None:
        raise OnnxError("a constant without a value")
    return np.array(value_ints if value_int is None else value_int, np.int64)


def _dtype(number: int) -> Any:
    kind = element_type(number)
    if not kind.is_own:
        raise OnnxError(f"elements of type {kind.name} are not supported here")
    return kind.held


def constant_of_shape(shape: Ints, *, value: Any = None) -> Tensor:
    filled = np.zeros(1, np.float32) if value is None else value
    first = tg.tensor(filled).reshape(())
    return first.expand(shape).clone()


def range_of(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    first, last, step = start.item(), limit.item(), delta.item()
    count = max(int(np.ceil((last - first) / step)), 0)
    return (tg.arange(count, device=start.device).to(start.dtype) * delta + start).to(start.dtype)


def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    rows, columns = (tg.arange(n, device=x.device) for n in x.shape)
    return (columns - rows.reshape(-1, 1) == k).to(x.dtype if dtype is None else _dtype(dtype))


def _random(draw: Any) -> Function:
    def rule(
        *, shape: list[int], dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None
    ) -> Tensor:
        return draw(shape, low, high).to(_dtype(dtype))  # type: ignore[no-any-return]

    return rule


def _uniform(shape: list[int], low: float, high: float) -> Tensor:
    return tg.rand(shape) * (high - low) + low


def random_normal(
    *, shape: list[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    return (tg.randn(shape) * scale + mean).to(_dtype(dtype))


def random_uniform_like(
    x: Tensor, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Tensor:
    return _uniform([*x.shape], low, high).to(x.dtype if dtype is None else _dtype(dtype))


def random_normal_like(
    x: Tensor, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    return (tg.randn([*x.shape]) * scale + mean).to(x.dtype if dtype is None else _dtype(dtype))


def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    return tg.bernoulli(x).to(x.dtype if dtype is None else _dtype(dtype))


def multinomial(x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Tensor:
    return tg.multinomial(tg.softmax(x, -1), sample_size, True).to(_dtype(dtype))


def window(*weights: float) -> Function:
    """Return the rule of a window: a sum of cosines with alternating signs."""

    def rule(size: Number, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
        count = int(size)
        turn = tg.arange(count).to(float32) * (2 * pi / (count if periodic else max(count - 1, 1)))
        parts = [weight * (-1) ** n * tg.cos(turn * n) for n, weight in enumerate(weights)]
        made: Tensor = sum(parts[1:], parts[0])
        return made.to(_dtype(output_datatype))

    return rule


RULES: dict[str, Function] = {
    "Bernoulli": bernoulli,
    "BlackmanWindow": window(0.42, 0.5, 0.08),
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "EyeLike": eye_like,
    "HammingWindow": window(25 / 46, 21 / 46),
    "HannWindow": window(0.5, 0.5),
    "Multinomial": multinomial,
    "RandomNormal": random_normal,
    "RandomNormalLike": random_normal_like,
    "RandomUniform": _random(_uniform),
    "RandomUniformLike": random_uniform_like,
    "Range": range_of,
}
