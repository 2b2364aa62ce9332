"""Mistakes with tensors, with the class of the error, the shapes, the remedy, and the user's line."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import (
    ArgumentError,
    AxisError,
    DeviceError,
    DTypeError,
    GradientError,
    IndexRangeError,
    InPlaceError,
    ShapeError,
    TilegradError,
)

A = tg.ones(3, 4)
B = tg.ones(2, 5)
N = tg.arange(3)
L = tg.ones(3, requires_grad=True)

CASES: list[tuple[Callable[[], Any], type[TilegradError], str]] = [
    (lambda: A + B, ShapeError, r"\(3, 4\) and \(2, 5\)"),
    (lambda: A @ B, ShapeError, r"\(3, 4\)"),
    (lambda: A @ 3, ArgumentError, "3"),
    (lambda: tg.tensor(3.0)[0], AxisError, "item"),
    (lambda: tg.zeros(2.5), ArgumentError, "2.5"),
    (lambda: tg.eye(-1), ShapeError, "-1"),
    (lambda: tg.tensor([300], dtype=tg.uint8), DTypeError, "300.*0 to 255"),
    (lambda: tg.tensor([1.0, 3e9], dtype=tg.int32), DTypeError, "3000000000"),
    (lambda: tg.tensor(2**63), DTypeError, "9223372036854775808"),
    (lambda: tg.mm(A, tg.ones(4)), ShapeError, r"\(4,\)"),
    (lambda: A.reshape(5, 5), ShapeError, "12 elements"),
    (lambda: A.reshape(-1, 5), ShapeError, "-1"),
    (lambda: A.t().view(12), ShapeError, "contiguous"),
    (lambda: A.expand(3, 5), ShapeError, r"\(3, 5\)"),
    (lambda: A.permute(0, 0), AxisError, "once"),
    (lambda: A.sum(2), AxisError, "axis 2"),
    (lambda: A.sum((0, 0)), AxisError, "twice"),
    (lambda: A.transpose(0, 5), AxisError, "5"),
    (lambda: A.unsqueeze(7), AxisError, "7"),
    (lambda: A.size(4), AxisError, "4"),
    (lambda: tg.cat([A, B]), ShapeError, "cat"),
    (lambda: tg.cat(A), ArgumentError, "list or tuple"),
    (lambda: tg.cat([]), ArgumentError, "no tensors"),
    (lambda: tg.stack([A, B]), ShapeError, "stack"),
    (lambda: A.split(0), ArgumentError, "split"),
    (lambda: A.split([1, 1]), ShapeError, "add up"),
    (lambda: A.narrow(0, 2, 5), IndexRangeError, "narrow"),
    (lambda: A[5], IndexRangeError, "index 5"),
    (lambda: A[0, 0, 0], AxisError, "3 indices"),
    (lambda: A[..., ...], AxisError, "once"),
    (lambda: A["x"], DTypeError, "'x'"),
    (lambda: A[1.5], DTypeError, "1.5"),
    (lambda: A[tg.ones(2)], DTypeError, "float32"),
    (lambda: A[tg.tensor([True, False])], ShapeError, "mask"),
    (lambda: A[[0, 7]], IndexRangeError, "index 7"),
    (lambda: A[[0, 1], [0, 1, 2]], ShapeError, "indexing"),
    (lambda: A[1.5:2], DTypeError, "slice"),
    (lambda: A.clone().__setitem__(0, tg.ones(5)), ShapeError, r"\(5,\)"),
    (lambda: A.gather(0, tg.tensor([[9, 0, 0, 0]])), IndexRangeError, "index 9"),
    (lambda: A.gather(0, A), DTypeError, "long"),
    (lambda: A.index_select(0, tg.tensor([3])), IndexRangeError, "index 3"),
    (lambda: A.masked_fill(A, 0), DTypeError, "bool"),
    (lambda: tg.where(A, A, A), DTypeError, "bool"),
    (lambda: A.topk(9), ArgumentError, "k is 9"),
    (lambda: N.mean(), DTypeError, r"float\(\)"),
    (lambda: N.std(), DTypeError, "int64"),
    (lambda: N**-1, DTypeError, "-1"),
    (lambda: -(N > 1), DTypeError, "bool"),
    (lambda: A & A, DTypeError, "bitand|bitwise_and|bit_and"),
    (lambda: A + "x", ArgumentError, "'x'"),
    (lambda: A + None, ArgumentError, "None"),
    (lambda: tg.add(1, 2), ArgumentError, "tensor"),
    (lambda: tg.exp(3.0), ArgumentError, "tensor"),
    (lambda: tg.zeros(0).max(), ShapeError, "no elements|elements"),
    (lambda: tg.zeros(2, -1), ShapeError, "negative"),
    (lambda: tg.tensor("abc"), ArgumentError, "abc"),
    (lambda: tg.tensor([[1, 2], [3]]), ShapeError, "length"),
    (lambda: tg.tensor(1j), DTypeError, "complex"),
    (lambda: tg.arange(0, 5, 0), ArgumentError, "step"),
    (lambda: tg.ones(2, device="cuda:77"), DeviceError, "cuda:77"),
    (lambda: tg.ones(2).to("nowhere"), DeviceError, "nowhere"),
    (lambda: A.to(3), DeviceError, "cuda:3"),
    (lambda: bool(A), ArgumentError, r"any\(\)"),
    (lambda: A.item(), ArgumentError, "tolist"),
    (lambda: len(tg.tensor(1)), ArgumentError, "len"),
    (lambda: list(tg.tensor(1)), ArgumentError, "item"),
    (lambda: range(tg.tensor(1.5)), ArgumentError, "float32"),  # type: ignore[call-overload]
    (lambda: L.add_(1), InPlaceError, "no_grad"),
    (lambda: L.numpy(), GradientError, "detach"),
    (lambda: N.clone().add_(1.5), DTypeError, "float32"),
    (lambda: tg.ones(4).add_(A), ShapeError, "without underscore"),
    (lambda: tg.ones(3, 1).expand(3, 4).zero_(), InPlaceError, "clone"),
    (lambda: L.t_(), InPlaceError, "no_grad"),
    (lambda: tg.einsum("ij,jk", A, B), ShapeError, "einsum"),
    (lambda: tg.einsum(A, B), ArgumentError, "equation"),
    (lambda: tg.softmax(A), ArgumentError, "dim"),
    (lambda: A.clamp(), ArgumentError, "min and max"),
    (lambda: tg.rand(2).bernoulli(3.0), ArgumentError, "probability"),
    (lambda: tg.randint(5, 5, (2,)), ArgumentError, "low"),
    (lambda: tg.multinomial(tg.ones(3), 5), ArgumentError, "replacement"),
    (lambda: tg.full((2,), 300, dtype=tg.uint8), DTypeError, "300"),
    (lambda: tg.set_default_dtype(tg.int32), DTypeError, "floating"),
    (lambda: A.div(2, rounding_mode="up"), ArgumentError, "'up'"),
    (lambda: tg.from_numpy([1, 2]), ArgumentError, "numpy"),
    (lambda: tg.tensor(np.array(["a"])), ArgumentError, "numbers"),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_message(number: int) -> None:
    use, error, message = CASES[number]
    with pytest.raises(error, match=message) as caught:
        use()
    assert "test_wrong_use.py:" in str(caught.value)


def test_index_that_is_known_later() -> None:
    """Indices that are not in memory yet are checked when something is computed."""
    later = tg.tensor([1, 2]).exp2().long() * 3 - 6
    y = A[later]
    with pytest.raises(IndexRangeError, match=r"index 6.*test_wrong_use.py"):
        y.tolist()
    assert A[tg.tensor([0, 1]) ** 2 * 2].tolist() == [[1] * 4] * 2
    with pytest.raises(IndexRangeError, match="embedding"):
        tg.embedding(A, tg.tensor([1]) ** 2 + 5).sum().item()


def test_errors_leave_everything_usable() -> None:
    x = tg.ones(3)
    with pytest.raises(ShapeError):
        x += tg.ones(2, 3)
    assert x.tolist() == [1, 1, 1]
