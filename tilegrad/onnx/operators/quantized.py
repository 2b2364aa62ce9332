"""Quantised tensors: integers of eight bits or fewer, with scales and zero points."""

from __future__ import annotations

from typing import Any

from ... import functional as tg
from ...ir.dtype import float32, int32, uint8
from ...tensor import Tensor
from ..rules import Function
from ..tensors import ElementType, element_type
from ..values import Narrow, as_tensor
from .conversion import SMALL_FLOATS, converted, type_of
from .convolution import conv_integer
from .products import matmul_integer


def _along(parameter: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """Shape scales or zero points so that they broadcast: one for all, one for each index of an axis, or for blocks."""
    if parameter.dim() == 0 or (parameter.numel() == 1 and not block_size):
        return parameter.reshape(())
    axis = axis % x.dim()
    if block_size:
        return tg.narrow(parameter.repeat_interleave(block_size, axis), axis, 0, int(x.shape[axis]))
    if parameter.dim() == 1:
        return parameter.reshape([-1] + [1] * (x.dim() - 1 - axis))
    return parameter


def _range(kind: ElementType) -> tuple[int, int]:
    assert kind.held is not None
    signed = kind.held.kind == "int"
    return (-(1 << kind.bits - 1), (1 << kind.bits - 1) - 1) if signed else (0, (1 << kind.bits) - 1)


def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Any:
    """Divide by the scale, round ties to even, add the zero point, and bound."""
    kind = type_of(zero_point) if zero_point is not None else element_type(output_dtype or 2)
    each = _along(scale, x, axis, block_size)
    y = x.to(float32) / each.to(float32)
    if kind.name in SMALL_FLOATS:
        return converted(y, kind, bool(saturate))
    y = tg.round(y)
    if zero_point is not None:
        y = y + _along(as_tensor(zero_point, x.device), x, axis, block_size).to(float32)
    low, high = _range(kind)
    assert kind.held is not None
    made = tg.clamp(y, low, high).to(int32).to(kind.held)
    return made if kind.is_own else Narrow(made, kind.name)


def dequantize_linear(
    x: Any, scale: Tensor, zero_point: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Tensor:
    """Subtract the zero point and multiply by the scale."""
    held = as_tensor(x, scale.device)
    wide = held.to(float32)
    if zero_point is not None:
        zero = _along(as_tensor(zero_point, held.device), held, axis, block_size)
        wide = (held.to(int32) - zero.to(int32)).to(float32) if held.dtype.is_integer else wide - zero.to(float32)
    made = wide * _along(scale, held, axis, block_size).to(float32)
    return converted(made, element_type(output_dtype)) if output_dtype else made.to(scale.dtype)


def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, ...]:
    """Quantise to uint8 over the range of the elements, which always has 0 in it."""
    low, high = tg.clamp(x.amin(), max=0.0), tg.clamp(x.amax(), min=0.0)
    scale = (high - low) / 255
    scale = tg.where(scale == 0, tg.ones_like(scale), scale)
    zero = tg.clamp(tg.round(-low / scale), 0, 255)
    return tg.clamp(tg.round(x / scale) + zero, 0, 255).to(int32).to(uint8), scale, zero.to(int32).to(uint8)


def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Any,
) -> Any:
    """Multiply quantised matrices."""
    product = matmul_integer(a, b, a_zero, b_zero).to(float32)
    left = a_scale.to(float32)
    left = left.unsqueeze(-1) if left.dim() == 1 and left.numel() > 1 else left
    return quantize_linear(product * (left * b_scale.to(float32)), y_scale, y_zero)


def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Any,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    """Convolve quantised tensors; the bias has the scale of the products."""
    sums = conv_integer(
        x, w, x_zero, w_zero, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides
    )
    per_channel = [-1] + [1] * (x.dim() - 2)
    if b is not None:
        sums = sums + b.reshape(per_channel)
    scale = x_scale * (w_scale.reshape(per_channel) if w_scale.dim() else w_scale)
    return quantize_linear(sums.to(float32) * scale, y_scale, y_zero)


RULES: dict[str, Function] = {
    "DequantizeLinear": dequantize_linear,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QuantizeLinear": quantize_linear,
}
