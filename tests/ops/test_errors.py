"""Operands that do not fit are refused when the operation is written, with the shapes and the remedy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.ops.registry import given
from tilegrad.errors import (
    ArgumentError,
    AxisError,
    DeviceError,
    DTypeError,
    IndexRangeError,
    ShapeError,
    TilegradError,
)
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Input, TensorType, Value
from tilegrad.ops import (
    arithmetic,
    bits,
    broadcasting,
    cast,
    contraction,
    control,
    creation,
    exponential,
    movement,
    reduction,
    scan,
    statistics,
    windows,
)
from tilegrad.ops.einsum import einsum


def f(*shape: int) -> Value:
    return given(np.zeros(shape, np.float32))


def i(*shape: int) -> Value:
    return given(np.zeros(shape, np.int64))


def elsewhere(*shape: int) -> Value:
    return Input(TensorType(float32, shape, "cuda:0"))


CASES: list[tuple[type[TilegradError], str, Callable[[], object]]] = [
    (ShapeError, r"add: shapes \(2, 3\) and \(4,\) do not fit: axis -1 has 3", lambda: arithmetic.add(f(2, 3), f(4))),
    (ShapeError, r"where: shapes .*make them equal", lambda: control.where(cast.to_bool(f(2)), f(3), f(3))),
    (DTypeError, r"mul: elements of two types, float32 .* int64 .*y.to\(", lambda: arithmetic.mul(f(2), i(2))),
    (DTypeError, r"exp takes floating-point elements, not int64", lambda: exponential.exp(i(2))),
    (DTypeError, r"bit_and takes bool or integer", lambda: bits.bitwise_and(f(2), f(2))),
    (DTypeError, r"condition has float32", lambda: control.where(f(2), f(2), f(2))),
    (DTypeError, r"0.5 does not fit int64", lambda: arithmetic.mul(i(2), 0.5)),
    (DTypeError, r"mean takes floating-point", lambda: statistics.mean(i(2))),
    (DTypeError, r"sum takes", lambda: reduction.reduce_sum(cast.to_bool(f(2)))),
    (DTypeError, r"bitcast", lambda: cast.bitcast(f(2), cast.float16)),
    (DeviceError, r"two devices.*y.to\('cpu'\)", lambda: arithmetic.add(f(2), elsewhere(2))),
    (DeviceError, r"two devices", lambda: movement.cat([f(2), elsewhere(2)])),
    (ShapeError, r"\(2, 3\) has 6 elements, \(4, 2\) has 8", lambda: broadcasting.reshape(f(2, 3), (4, 2))),
    (ShapeError, r"no one size for the -1", lambda: broadcasting.reshape(f(2, 3), (4, -1))),
    (ShapeError, r"no one size", lambda: broadcasting.reshape(f(2, 3), (-1, -1))),
    (ShapeError, r"expand: \(2, 3\) cannot become", lambda: broadcasting.expand(f(2, 3), (4, 3))),
    (ShapeError, r"-1 where", lambda: broadcasting.expand(f(3), (-1, 3))),
    (AxisError, r"sum: there is no axis 2; a tensor of 2 axes takes -2 to 1", lambda: reduction.reduce_sum(f(2, 3), 2)),
    (AxisError, r"twice", lambda: reduction.reduce_sum(f(2, 3), (0, -2))),
    (AxisError, r"cumsum: there is no axis -3", lambda: scan.cumsum(f(2, 3), -3)),
    (ShapeError, r"max: no elements along", lambda: reduction.amax(f(0, 3), 0)),
    (ShapeError, r"argmax: .* has no elements", lambda: reduction.argmax(f(0, 3))),
    (AxisError, r"permute: \(0, 0\)", lambda: movement.permute(f(2, 3), (0, 0))),
    (AxisError, r"transpose: there is no axis 5", lambda: movement.transpose(f(2, 3), 0, 5)),
    (AxisError, r"movedim", lambda: movement.moveaxis(f(2, 3), (0, 1), (0, 0))),
    (AxisError, r"flatten", lambda: movement.flatten(f(2, 3), 1, 0)),
    (ShapeError, r"unflatten", lambda: movement.unflatten(f(2, 3), 1, (2, -1))),
    (IndexRangeError, r"narrow", lambda: movement.narrow(f(2, 3), 1, 2, 2)),
    (IndexRangeError, r"index 3 is outside axis 1 of \(2, 3\)", lambda: movement.select(f(2, 3), 1, 3)),
    (ArgumentError, r"step must not be 0", lambda: movement.slice_axis(f(3), 0, None, None, 0)),
    (ShapeError, r"sizes \[1, 1\] add up to 2", lambda: movement.split(f(3), (1, 1))),
    (ArgumentError, r"parts", lambda: movement.chunk(f(3), 0)),
    (ShapeError, r"cat: .* along axis 0", lambda: movement.cat([f(2, 3), f(2, 4)])),
    (ArgumentError, r"no tensors", lambda: movement.cat([])),
    (ShapeError, r"use stack", lambda: movement.cat([f(), f()])),
    (ShapeError, r"not equal", lambda: movement.stack([f(2), f(3)])),
    (ShapeError, r"pairs of widths", lambda: movement.pad(f(2, 3), ((1, 1),))),
    (ArgumentError, r"roll: 2 shifts", lambda: movement.roll(f(2, 3), (1, 1), 0)),
    (ShapeError, r"repeat", lambda: movement.repeat(f(2, 3), (2,))),
    (ShapeError, r"fewer than two axes", lambda: windows.tril(f(3))),
    (AxisError, r"two different axes", lambda: windows.diagonal(f(3, 3), 0, 1, -1)),
    (ShapeError, r"unfold: windows of 5", lambda: windows.unfold(f(3), 0, 5, 1)),
    (ShapeError, r"matmul: \(2, 3\) and \(2, 3\) do not fit", lambda: contraction.matmul(f(2, 3), f(2, 3))),
    (ShapeError, r"at least one axis", lambda: contraction.matmul(f(), f(2))),
    (ShapeError, r"axis a has 2 elements in one and 3", lambda: contraction.matmul(f(2, 2, 2), f(3, 2, 2))),
    (ShapeError, r"mv: y has shape \(3, 3\)", lambda: contraction.mv(f(3, 3), f(3, 3))),
    (DTypeError, r"contraction", lambda: contraction.matmul(f(2, 2), i(2, 2))),
    (ShapeError, r"tensordot", lambda: contraction.tensordot(f(2, 3), f(3, 2))),
    (ArgumentError, r"2 operands, but 1", lambda: einsum("i,i", f(2))),
    (ShapeError, r"'i' in 'i,i->' is 2 in one", lambda: einsum("i,i->", f(2), f(3))),
    (ShapeError, r"does not name the 2 axes", lambda: einsum("i->i", f(2, 3))),
    (ArgumentError, r"stands there once", lambda: einsum("i->ii", f(2))),
    (ArgumentError, r"only letters", lambda: einsum("i1->i", f(2))),
    (ArgumentError, r"does not lead from 0 to 5", lambda: creation.arange(0, 5, -1)),
]


@pytest.mark.parametrize("error, message, wrong", CASES, ids=[str(n) for n in range(len(CASES))])
def test_refused(error: type[TilegradError], message: str, wrong: Callable[[], object]) -> None:
    with pytest.raises(error, match=message):
        wrong()
