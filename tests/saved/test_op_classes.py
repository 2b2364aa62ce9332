"""Ops in files: which there are, and that what each is given is checked."""

import pytest

from tilegrad.errors import ShapeError
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Input, TensorType
from tilegrad.ir.size import Size
from tilegrad.ops.movement import Pad, Permute, Slice
from tilegrad.saved.op_classes import CHECKS, check_value, op_classes


def test_ops_have_one_name_each_and_plain_attributes() -> None:
    found = op_classes()
    assert {"add", "contract", "convolve", "max_pool", "recurrence", "attention", "gather", "philox"} <= {*found}
    assert not {"input", "joint_output", "external_call", "declared", "batched"} & {*found}
    for cls in found.values():
        assert all(cls.annotations[name] in CHECKS for name in cls.attribute_fields)


X = Input(TensorType(float32, (Size.named("n"), 4)))
N = Size.named("n")


@pytest.mark.parametrize(
    "value",
    [
        Slice(X, (0, 1), (1, 1), (N, 4)),
        Slice(X, (1, 0), (1, 1), (N, 4)),
        Slice(X, (0, 3), (1, -2), (N, 3)),
        Slice(X, (0,), (1, 1), (N, 4)),
        Slice(X, (-1, 0), (1, 1), (N, 4)),
    ],
)
def test_views_outside_their_input_are_refused(value: Slice) -> None:
    with pytest.raises(ShapeError):
        check_value(value)


@pytest.mark.parametrize(
    "value",
    [
        Slice(X, (0, 3), (1, -1), (N, 4)),
        Slice(X, (1, 0), (1, 2), (N + -1, 2)),
        Pad(X, (1, 1), (1, 1), (N + 2, 6), 0.0),
        Permute(X, (1, 0)),
    ],
)
def test_views_of_their_input_are_accepted(value: Slice) -> None:
    check_value(value)
