"""Write the ops of the graph language as nodes of ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, prod
from typing import Any

import numpy as np

from ..ir.graph import Input, Value
from ..ir.size import Dim
from ..ops import (
    activation,
    arithmetic,
    bits,
    broadcasting,
    cast,
    comparison,
    contraction,
    control,
    convolution,
    creation,
    exponential,
    indexing,
    movement,
    pooling,
    reduction,
    rounding,
    scan,
    trigonometric,
)
from ..ops.sliding import Adaptive, Sliding
from .graph_writer import CannotWrite, GraphWriter, Writing
from .tensors import NUMBERS


def _plain(op_type: str) -> Writing:
    """Return what writes one node with the same operands."""
    return lambda value, writer: writer.node(op_type, *map(writer.name, value.inputs))


def _either(of_bools: str, of_others: str) -> Writing:
    """Return what writes one of two nodes, by the dtype of the operands."""

    def write(value: Any, writer: GraphWriter) -> str:
        op_type = of_bools if value.inputs[0].dtype.kind == "bool" else of_others
        return writer.node(op_type, *map(writer.name, value.inputs))

    return write


def _number(writer: GraphWriter, number: float, value: Value) -> str:
    return writer.constant(number, value.dtype.numpy)


def _fill(value: Any, writer: GraphWriter) -> str:
    number = _number(writer, value.value, value)
    return number if not value.shape else writer.node("Expand", number, writer.shape(value.shape))


def _reshape(value: Any, writer: GraphWriter) -> str:
    # reshapes of reshapes are written as one
    origin = value.x
    while isinstance(origin, broadcasting.Reshape):
        origin = origin.x
    known = writer.other_forms.get(origin, {}).get(value.shape)
    return known or writer.reshaped(origin, value.shape)


def _expand(value: Any, writer: GraphWriter) -> str:
    offset = len(value.shape) - len(value.x.shape)
    given = (1,) * offset + tuple(value.x.shape)
    sizes: list[Dim] = [1 if have == want else want for have, want in zip(given, value.shape, strict=True)]
    return writer.node("Expand", writer.name(value.x), writer.shape(sizes))


def _slice(value: Any, writer: GraphWriter) -> str:
    columns: tuple[list[Any], ...] = ([], [], [], [])
    for axis, (start, step, size) in enumerate(zip(value.starts, value.steps, value.sizes, strict=True)):
        if start == 0 and step == 1 and size == value.x.shape[axis]:
            continue
        first, end = _bounds(start, step, size, value.x.shape[axis])
        for column, number in zip(columns, (first, end, axis, step), strict=True):
            column.append(number)
    if not columns[0]:
        return writer.name(value.x)
    return writer.node("Slice", writer.name(value.x), *map(writer.constant, columns))


def _bounds(start: Any, step: int, size: Any, extent: Any) -> tuple[int, int]:
    """Return the bounds of a slice as ONNX wants them."""
    if step == -1 and size == extent:
        return -1, -(1 << 62)
    if not (isinstance(start, int) and isinstance(size, int)):
        raise CannotWrite("it cuts an axis of a size that varies")
    end = start + size * step
    return start, end if end >= 0 else -(1 << 62)


def _pad(value: Any, writer: GraphWriter) -> str:
    if any(step != 1 for step in value.steps):
        raise CannotWrite("elements are put between others")
    before: list[Dim] = [*value.starts]
    behind = [s - b - n for s, b, n in zip(value.sizes, before, value.x.shape, strict=True)]
    if not all(isinstance(n, int) for n in (*before, *behind)):
        raise CannotWrite("it widens an axis by a size that varies")
    return writer.node(
        "Pad", writer.name(value.x), writer.constant([*before, *behind]), _number(writer, value.value, value)
    )


def _cat(value: Any, writer: GraphWriter) -> str:
    return writer.node("Concat", *map(writer.name, value.tensors), axis=value.axis)


def _permute(value: Any, writer: GraphWriter) -> str:
    return writer.node("Transpose", writer.name(value.x), perm=value.axes)


def _reducing(op_type: str) -> Writing:
    def write(value: Any, writer: GraphWriter) -> str:
        if not value.axes:
            return writer.name(value.x)
        return writer.node(op_type, writer.name(value.x), writer.constant(value.axes), keepdims=int(value.keepdim))

    return write


def _sum(value: Any, writer: GraphWriter) -> str:
    x = value.x
    rank = len(x.axes) if isinstance(x, pooling.Im2col) else 0
    if rank and value.axes == tuple(range(len(x.shape) - 2 * rank, len(x.shape) - rank)) and not value.keepdim:
        return _summed_windows(x, writer)
    return _reducing("ReduceSum")(value, writer)


def _summed_windows(value: Any, writer: GraphWriter) -> str:
    """Write sums over windows as averages."""
    axes = _regular(value.axes)
    images, shape = _images(value, writer)
    mean = writer.node("AveragePool", images, count_include_pad=1, **_windows(axes))
    count = prod(axis.taps for axis in axes)
    made = writer.node("Mul", mean, _number(writer, float(count), value))
    return _restored(value.x, shape, made, [axis.count for axis in value.axes], writer)


def _images(value: Any, writer: GraphWriter) -> tuple[str, list[Dim]]:
    """Return the operand of a pooling with two axes before those of the windows."""
    rank = len(value.axes)
    lead, sizes = value.x.shape[:-rank], value.x.shape[-rank:]
    shape = [*lead] if len(lead) == 2 else [1] * (2 - len(lead)) + [*lead] if len(lead) < 2 else [1, -1]
    if len(lead) == 2:
        return writer.name(value.x), [*lead]
    if len(lead) > 2 and not all(isinstance(n, int) for n in lead):
        raise CannotWrite("windows of a tensor with several axes before them, of sizes that vary")
    shape = [1, prod(lead)] if len(lead) > 2 else shape
    return writer.reshaped(value.x, [*shape, *sizes]), shape


def _restored(x: Value, shape: list[Dim], name: str, counts: Sequence[Dim], writer: GraphWriter) -> str:
    lead = [*x.shape[: len(x.shape) - len(counts)]]
    return name if lead == shape else writer.node("Reshape", name, writer.shape([*lead, *counts], spare=True))


def _regular(axes: Sequence[Any]) -> list[Sliding]:
    """Return windows at equal distances; adaptive ones are, if they divide their axis."""
    made = []
    for axis in axes:
        if isinstance(axis, Adaptive) and axis.extent % axis.count == 0:
            taps = axis.extent // axis.count
            axis = Sliding(axis.extent, axis.count, taps, taps)
        if not isinstance(axis, Sliding):
            raise CannotWrite("its windows have different widths")
        made.append(axis)
    return made


def _windows(axes: Sequence[Sliding]) -> dict[str, list[int]]:
    """Return windows as attributes; what the last ones take behind the axis is padding."""
    behind = []
    for axis in axes:
        size = axis.extent + axis.padding
        last = (axis.count - 1) * axis.stride + axis.dilation * (axis.taps - 1) + 1 - size
        behind.append(max(last, 0) if isinstance(last, int) else axis.padding)
    made = {
        "kernel_shape": [axis.taps for axis in axes],
        "strides": [axis.stride for axis in axes],
        "pads": [axis.padding for axis in axes] + behind,
    }
    return made | ({"dilations": [axis.dilation for axis in axes]} if any(a.dilation != 1 for a in axes) else {})


def _im2col(value: Any, writer: GraphWriter) -> str:
    """Refuse windows that are not summed; their sums are written as averages."""

    def refused() -> str:
        raise CannotWrite("it reads windows, for which there is no ONNX operator")

    writer.deferred[value] = refused
    return ""


def _max_pool(value: Any, writer: GraphWriter) -> str:
    windows = _windows(_regular(value.axes))
    images, shape = _images(value, writer)
    made = writer.node("MaxPool", images, **windows)
    return _restored(value.x, shape, made, [axis.count for axis in value.axes], writer)


def _convolve(value: Any, writer: GraphWriter) -> str:
    made, flat = _convolution(value, writer)
    writer.other_forms.setdefault(value, {})[flat] = made
    writer.deferred[value] = lambda: writer.node("Reshape", made, writer.shape(value.shape, spare=True))
    return ""


def _convolution(value: Any, writer: GraphWriter, *bias: str) -> tuple[str, tuple[Dim, ...]]:
    """Write a convolution; groups are an axis in our graphs, and an attribute in ONNX."""
    n, groups, inner = value.x.shape[:3]
    outer = value.w.shape[1]
    images = _flattened(value.x, [n, groups * inner, *value.x.shape[3:]], writer)
    weights = _flattened(value.w, [groups * outer, *value.w.shape[2:]], writer)
    made = writer.node("Conv", images, weights, *bias, group=groups, **_windows(_regular(value.axes)))
    return made, (n, groups * outer, *value.shape[3:])


def _add(value: Any, writer: GraphWriter) -> str:
    """Write a sum; that of a layer becomes the node of the layer."""
    if value.dtype.kind == "bool":
        return writer.node("Or", *map(writer.name, value.inputs))
    rank = len(value.shape)
    match value:
        case arithmetic.Add(x=broadcasting.Reshape(x=convolution.Convolve() as inner) as whole, y=bias):
            channels = _per_channel(bias, rank)
            if channels is not None and rank == len(inner.axes) + 2:
                made, flat = _convolution(inner, writer, writer.name(channels))
                if flat == whole.shape:
                    return made
        case arithmetic.Add(
            x=arithmetic.Mul(
                x=arithmetic.Mul(
                    x=arithmetic.Sub(x=x, y=mean),
                    y=exponential.Rsqrt(x=arithmetic.Add(x=variance, y=broadcasting.Fill(value=epsilon))),
                ),
                y=scale,
            ),
            y=bias,
        ) if x.shape == value.shape and rank > 1:
            tensors = [_per_channel(each, rank) for each in (scale, bias, mean, variance)]
            if all(each is not None and each.shape == (x.shape[1],) for each in tensors):
                names = [writer.name(each) for each in tensors if each is not None]
                return writer.node("BatchNormalization", writer.name(x), *names, epsilon=float(epsilon))
    return writer.node("Add", *map(writer.name, value.inputs))


def _per_channel(value: Any, rank: int) -> Value | None:
    """Return the input that has one element for each channel of a tensor with so many axes, if it is that."""
    sizes = value.shape
    origin = value.x if isinstance(value, broadcasting.Reshape) else value
    fits = len(sizes) == rank - 1 and sizes[1:] == (1,) * (rank - 2) and origin.shape == sizes[:1]
    return origin if fits and isinstance(origin, Input) else None


def _flattened(value: Value, sizes: list[Dim], writer: GraphWriter) -> str:
    """Return a value in another shape, from what it was reshaped from if that fits."""
    if isinstance(value, broadcasting.Reshape) and value.x.shape == tuple(sizes):
        return writer.name(value.x)
    return writer.reshaped(value, sizes)


def _contract(value: Any, writer: GraphWriter) -> str:
    given, made = value.equation.split("->")
    x, y = given.split(",")
    batch = made[:-2]
    names = writer.name(value.x), writer.name(value.y)
    if len(made) >= 2 and x == batch + made[-2] + x[-1:] and y == batch + x[-1:] + made[-1] and x[-1:] not in made:
        return writer.node("MatMul", *names)
    return writer.node("Einsum", *names, equation=value.equation)


def _cast(value: Any, writer: GraphWriter) -> str:
    return writer.node("Cast", writer.name(value.x), to=NUMBERS[value.to])


def _arg(op_type: str) -> Writing:
    def write(value: Any, writer: GraphWriter) -> str:
        if len(value.axes) != 1:
            raise CannotWrite("it looks along several axes at once")
        return writer.node(op_type, writer.name(value.x), axis=value.axes[0], keepdims=int(value.keepdim))

    return write


def _truth(op_type: str) -> Writing:
    """Return what writes `any` or `all` as the extreme of integers."""

    def write(value: Any, writer: GraphWriter) -> str:
        numbers = writer.node("Cast", writer.node("Cast", writer.name(value.x), to=9), to=6)
        made = writer.node(op_type, numbers, writer.constant(value.axes), keepdims=int(value.keepdim))
        return writer.node("Cast", made, to=9)

    return write


def _cumulative(op_type: str) -> Writing:
    return lambda value, writer: writer.node(op_type, writer.name(value.x), writer.constant(value.axis))


def _iota(value: Any, writer: GraphWriter) -> str:
    if isinstance(value.extent, int):
        return writer.constant(np.arange(value.extent))
    end = writer.node("Squeeze", writer.size(value.extent), writer.constant([0]))
    return writer.node("Range", writer.constant(0), end, writer.constant(1))


def _size_value(value: Any, writer: GraphWriter) -> str:
    size = writer.node("Squeeze", writer.size(value.extent), writer.constant([0]))
    return writer.node("Cast", size, to=NUMBERS[value.to])


def _gather(value: Any, writer: GraphWriter) -> str:
    if len(value.axes) == 1:
        return writer.node("Gather", writer.name(value.x), writer.name(value.indices[0]), axis=value.axes[0])
    if value.axes != tuple(range(len(value.axes))):
        raise CannotWrite("it indexes several axes behind the first")
    shape = (*value.indices[0].shape, 1)
    columns = [writer.reshaped(index, shape) for index in value.indices]
    return writer.node("GatherND", writer.name(value.x), writer.node("Concat", *columns, axis=len(shape) - 1))


def _take_along(value: Any, writer: GraphWriter) -> str:
    return writer.node("GatherElements", writer.name(value.x), writer.name(value.index), axis=value.axis)


def _detach(value: Any, writer: GraphWriter) -> str:
    return writer.name(value.x)


def _clamp(value: Any, writer: GraphWriter) -> str:
    x, low, high = map(writer.name, value.inputs)
    return writer.node("Min", writer.node("Max", x, low), high)


def _floor_divide(value: Any, writer: GraphWriter) -> str:
    if not value.dtype.is_float:
        raise CannotWrite("integers are rounded down")
    return writer.node("Floor", writer.node("Div", *map(writer.name, value.inputs)))


def _remainder(value: Any, writer: GraphWriter) -> str:
    x, y = map(writer.name, value.inputs)
    if not value.dtype.is_float:
        return writer.node("Mod", x, y)
    whole = writer.node("Floor", writer.node("Div", x, y))
    return writer.node("Sub", x, writer.node("Mul", whole, y))


def _fmod(value: Any, writer: GraphWriter) -> str:
    return writer.node("Mod", *map(writer.name, value.inputs), fmod=1)


def _not_equal(value: Any, writer: GraphWriter) -> str:
    return writer.node("Not", writer.node("Equal", *map(writer.name, value.inputs)))


def _is_finite(value: Any, writer: GraphWriter) -> str:
    x = writer.name(value.x)
    return writer.node("Not", writer.node("Or", writer.node("IsNaN", x), writer.node("IsInf", x)))


def _logarithm(base: float) -> Writing:
    def write(value: Any, writer: GraphWriter) -> str:
        return writer.node("Div", writer.node("Log", writer.name(value.x)), _number(writer, log(base), value))

    return write


def _expm1(value: Any, writer: GraphWriter) -> str:
    return writer.node("Sub", writer.node("Exp", writer.name(value.x)), _number(writer, 1.0, value))


def _log1p(value: Any, writer: GraphWriter) -> str:
    return writer.node("Log", writer.node("Add", writer.name(value.x), _number(writer, 1.0, value)))


def _exp2(value: Any, writer: GraphWriter) -> str:
    return writer.node("Pow", _number(writer, 2.0, value), writer.name(value.x))


def _erfc(value: Any, writer: GraphWriter) -> str:
    return writer.node("Sub", _number(writer, 1.0, value), writer.node("Erf", writer.name(value.x)))


def _trunc(value: Any, writer: GraphWriter) -> str:
    x = writer.name(value.x)
    return writer.node("Mul", writer.node("Sign", x), writer.node("Floor", writer.node("Abs", x)))


WRITINGS: dict[type[Value], Writing] = {
    activation.Gelu: _plain("Gelu"),
    activation.Relu: _plain("Relu"),
    activation.Sigmoid: _plain("Sigmoid"),
    arithmetic.Abs: _plain("Abs"),
    arithmetic.Add: _add,
    arithmetic.Clamp: _clamp,
    arithmetic.Div: _plain("Div"),
    arithmetic.FloorDivide: _floor_divide,
    arithmetic.Fmod: _fmod,
    arithmetic.Maximum: _either("Or", "Max"),
    arithmetic.Minimum: _either("And", "Min"),
    arithmetic.Mul: _either("And", "Mul"),
    arithmetic.Neg: _plain("Neg"),
    arithmetic.Remainder: _remainder,
    arithmetic.Sign: _plain("Sign"),
    arithmetic.Sub: _plain("Sub"),
    arithmetic.TruncDivide: _plain("Div"),
    bits.BitAnd: _either("And", "BitwiseAnd"),
    bits.BitOr: _either("Or", "BitwiseOr"),
    bits.BitXor: _either("Xor", "BitwiseXor"),
    bits.Invert: _either("Not", "BitwiseNot"),
    broadcasting.Expand: _expand,
    broadcasting.Fill: _fill,
    broadcasting.Reshape: _reshape,
    broadcasting.Sum: _sum,
    cast.Cast: _cast,
    cast.Detach: _detach,
    comparison.Equal: _plain("Equal"),
    comparison.Greater: _plain("Greater"),
    comparison.GreaterEqual: _plain("GreaterOrEqual"),
    comparison.IsFinite: _is_finite,
    comparison.IsInf: _plain("IsInf"),
    comparison.IsNan: _plain("IsNaN"),
    comparison.Less: _plain("Less"),
    comparison.LessEqual: _plain("LessOrEqual"),
    comparison.NotEqual: _not_equal,
    contraction.Contract: _contract,
    control.CheckedIndex: _detach,
    control.Where: _plain("Where"),
    convolution.Convolve: _convolve,
    creation.Iota: _iota,
    creation.SizeValue: _size_value,
    exponential.Exp: _plain("Exp"),
    exponential.Exp2: _exp2,
    exponential.Expm1: _expm1,
    exponential.Log: _plain("Log"),
    exponential.Log1p: _log1p,
    exponential.Log10: _logarithm(10.0),
    exponential.Log2: _logarithm(2.0),
    exponential.Power: _plain("Pow"),
    exponential.Rsqrt: lambda value, writer: writer.node("Reciprocal", writer.node("Sqrt", writer.name(value.x))),
    exponential.Sqrt: _plain("Sqrt"),
    indexing.Gather: _gather,
    indexing.TakeAlong: _take_along,
    movement.Cat: _cat,
    movement.Pad: _pad,
    movement.Permute: _permute,
    movement.Slice: _slice,
    pooling.Im2col: _im2col,
    pooling.MaxPool: _max_pool,
    reduction.All: _truth("ReduceMin"),
    reduction.Any: _truth("ReduceMax"),
    reduction.Argmax: _arg("ArgMax"),
    reduction.Argmin: _arg("ArgMin"),
    reduction.Max: _reducing("ReduceMax"),
    reduction.Min: _reducing("ReduceMin"),
    reduction.Prod: _reducing("ReduceProd"),
    rounding.Ceil: _plain("Ceil"),
    rounding.Floor: _plain("Floor"),
    rounding.Round: _plain("Round"),
    rounding.Trunc: _trunc,
    scan.Cumprod: _cumulative("CumProd"),
    scan.Cumsum: _cumulative("CumSum"),
    trigonometric.Erfc: _erfc,
    **{
        kind: _plain(kind.__name__)
        for kind in (
            *(trigonometric.Sin, trigonometric.Cos, trigonometric.Tan, trigonometric.Asin, trigonometric.Acos),
            *(trigonometric.Atan, trigonometric.Sinh, trigonometric.Cosh, trigonometric.Tanh, trigonometric.Asinh),
            *(trigonometric.Acosh, trigonometric.Atanh, trigonometric.Erf),
        )
    },
}
"""What writes each class of values; those that are not here are named before anything is written."""
